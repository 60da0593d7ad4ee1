"""Every deck of input/ runs, and its plan equals the run to the byte."""
import json
import pathlib
import unittest

import yaml

from support import ROOT, ApplicationTest

# What makes a deck of full size small enough for a test; everything else stays as it is.
SMALLER = {
    "priced_slimpipe.yaml": ["device.time_scale=0.001"],
    "too_big.yaml": ["training.sequence=16", "model.hidden=64", "model.ffn=96", "memory.device=4 MiB"],
    "long_context.yaml": ["training.sequence=512", "output.checkpoint_every=0"],
    "gpt2_124m.yaml": ["training.sequence=16", "model.layers=2", "model.hidden=96", "training.steps=1"],
}


class Decks(ApplicationTest):
    def decks(self):
        decks = sorted((ROOT / "input").glob("*.yaml"))
        self.assertGreater(len(decks), 3)
        return decks

    def overrides(self, deck):
        values = ["training.steps=2", "output.sample.tokens=3", f"output.directory={self.folder / deck.stem}",
                  *SMALLER.get(deck.name, [])]
        return [part for value in values for part in ("--set", value)]

    def test_every_deck_runs_and_uses_what_was_planned(self):
        for deck in self.decks():
            with self.subTest(deck=deck.name):
                overrides = self.overrides(deck)
                plan = self.penstock(["check", str(deck), "--json", *overrides])
                self.assertEqual(plan.returncode, 0, plan.stdout)
                planned = [rank["planned_device_bytes"] for rank in json.loads(plan.stdout)["ranks"]]
                run = self.penstock(["train", str(deck), *overrides], len(planned))
                self.assertEqual(run.returncode, 0, run.stdout)
                summary = json.loads((self.folder / deck.stem / "summary.json").read_text())
                self.assertEqual([rank["peak_device_bytes"] for rank in summary["ranks"]], planned)
                self.assertEqual([rank["planned_device_bytes"] for rank in summary["ranks"]], planned)

    def check_long_context(self, *values):
        deck = str(ROOT / "input" / "long_context.yaml")
        return self.penstock(["check", deck, "--json", *(part for value in values for part in ("--set", value))])

    def test_a_long_sequence_fits_in_slices_alone(self):
        sliced = self.check_long_context()
        self.assertEqual(sliced.returncode, 0, sliced.stdout)
        whole = self.check_long_context("schedule.kind=1f1b", "schedule.slices=1")
        self.assertEqual(whole.returncode, 3, whole.stdout)
        self.assertIn("the plan needs", whole.stdout)

    def test_memory_grows_with_a_sequence_and_not_with_its_square(self):
        def planned(sequence, slices):
            check = self.check_long_context(f"training.sequence={sequence}", f"schedule.slices={slices}",
                                            "memory.device=4 GiB")
            self.assertEqual(check.returncode, 0, check.stdout)
            return [rank["planned_device_bytes"] for rank in json.loads(check.stdout)["ranks"]]

        for once, twice in zip(planned(32768, 16), planned(65536, 16)):
            self.assertLess(twice, 2 * once)
        # Of slices of one length, a longer sequence has more: they keep more, and nothing grows faster.
        for once, twice in zip(planned(32768, 8), planned(65536, 16)):
            self.assertLess(twice, 2 * once)

    def test_every_schedule_is_drawn(self):
        for file in [*self.decks(), *sorted((ROOT / "input").glob("*.csv"))]:
            with self.subTest(file=file.name):
                svg = self.folder / f"{file.name}.svg"
                shown = self.penstock(["show", str(file), "--svg", str(svg)])
                self.assertEqual(shown.returncode, 0, shown.stdout)
                self.assertIn("bubble", shown.stdout)
                self.assertIn("<svg", svg.read_text())

    def test_the_effective_deck_of_a_run_gives_the_same_run(self):
        first = self.train(1)
        self.assert_finished(first)
        again = self.folder / "again"
        run = self.penstock(["train", str(first.directory / "deck.yaml"), "--set", f"output.directory={again}"], 1)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertEqual(yaml.safe_load((again / "deck.yaml").read_text())["model"],
                         yaml.safe_load((first.directory / "deck.yaml").read_text())["model"])
        losses = [(pathlib.Path(d) / "metrics.csv").read_text().splitlines()[1].split(",")[2] for d in
                  (first.directory, again)]
        self.assertEqual(*losses)


if __name__ == "__main__":
    unittest.main()
