"""Advice for what does not fit: each change that is told gives the bytes that are told, and what is said to fit runs."""
import json
import re
import shlex
import unittest

from support import ROOT, ApplicationTest, long_under_sanitizers

ALONE = re.compile(r"^  (--set .*\S) +[0-9.]+ \w+ \((\d+) bytes\)(: fits)?(, .*)?$", re.MULTILINE)
TOGETHER = re.compile(r"together these do, with .* \((\d+) bytes\):\n  (--set .*)\n")


class Fit(ApplicationTest):
    def check(self, deck, *arguments):
        return self.penstock(["check", str(deck), *arguments])

    def plan(self, deck, *arguments):
        """The plan as JSON; one that does not fit is followed by the error."""
        return json.JSONDecoder().raw_decode(self.check(deck, "--json", *arguments).stdout)[0]

    def largest_rank(self, deck, capacity, settings=""):
        """What a plan needs follows the capacity, where weight gradients wait as far as that allows."""
        plan = self.plan(deck, "--set", f"memory.device={capacity}", *shlex.split(settings))
        return max(rank["planned_device_bytes"] for rank in plan["ranks"])

    def refusal(self, deck, capacity, *arguments):
        done = self.check(deck, "--set", f"memory.device={capacity}", *arguments)
        self.assertEqual(done.returncode, 3, done.stdout)
        return done.stdout

    def assert_advice_holds(self, deck, refused, capacity):
        """Each change alone gives what is told of it, from the best to the worst, all less than the deck needs."""
        told = [(settings, int(bytes_), bool(fits)) for settings, bytes_, fits, _ in ALONE.findall(refused)]
        self.assertGreater(len(told), 1, refused)
        for settings, bytes_, fits in told:
            with self.subTest(settings=settings):
                self.assertEqual(self.largest_rank(deck, capacity, settings), bytes_)
                self.assertEqual(fits, bytes_ <= capacity)
        self.assertEqual([bytes_ for _, bytes_, _ in told], sorted(bytes_ for _, bytes_, _ in told))
        self.assertLess(told[-1][1], self.largest_rank(deck, capacity))

    @long_under_sanitizers
    def test_every_change_gives_the_bytes_that_are_told(self):
        for name, mebibytes in (("slimpipe", 8), ("mepipe", 8), ("spipe", 5), ("quickstart", 20)):
            with self.subTest(deck=name):
                deck = ROOT / f"input/{name}.yaml"
                refused = self.refusal(deck, f"{mebibytes}MiB")
                self.assert_advice_holds(deck, refused, mebibytes << 20)

    @long_under_sanitizers
    def test_changes_that_fit_together_are_told_where_none_fits_alone(self):
        deck = ROOT / "input/slimpipe.yaml"
        refused = self.refusal(deck, "8MiB")

        self.assertNotIn(": fits", refused)
        (bytes_, settings), = TOGETHER.findall(refused)
        self.assertEqual(self.largest_rank(deck, "8MiB", settings), int(bytes_))
        accepted = self.check(deck, "--set", "memory.device=8MiB", *shlex.split(settings))
        self.assertEqual(accepted.returncode, 0, accepted.stdout)

    def test_what_no_changes_make_fit_is_said_to_be_so(self):
        refused = self.refusal(ROOT / "input/slimpipe.yaml", "64KiB")

        self.assertIn("None of them fits, nor several together", refused)
        self.assertNotIn("together these do", refused)

    @long_under_sanitizers
    def test_a_plan_that_does_not_fit_is_shown_once_and_its_data_not_at_all(self):
        refused = self.refusal(ROOT / "input/quickstart.yaml", "20MiB")

        self.assertEqual(len(re.findall(r"^  workspace ", refused, re.MULTILINE)), 1, refused)
        self.assertNotIn("data.train: text", refused)

    @long_under_sanitizers
    def test_the_places_of_stages_that_come_and_go_are_named(self):
        shown = self.check(ROOT / "input/too_big.yaml").stdout

        self.assertIn("kept for stages that come and go", shown)

    @long_under_sanitizers
    def test_host_memory_that_does_not_suffice_is_told_what_a_plan_says(self):
        deck = self.deck({"training": {"clip_mode": "speculative"}, "parallel.pipeline": 2})
        node = self.plan(deck)["node_host_bytes"]
        refused = self.check(deck, "--set", f"memory.host={node - 1}")

        self.assertEqual(refused.returncode, 3, refused.stdout)
        told = {settings: int(bytes_) for settings, bytes_, _, _ in ALONE.findall(refused.stdout)}
        inverse = self.plan(deck, "--set", "memory.rollback=inverse")["node_host_bytes"]
        self.assertEqual(told["--set memory.rollback=inverse"], inverse)
        self.assertIn("writes a checkpoint, whatever output.checkpoint_every", refused.stdout)

    @long_under_sanitizers
    def test_text_from_a_checkpoint_is_told_of_ranks_and_not_of_training(self):
        trained = self.train(1, {"output.checkpoint_every": 3})
        refused = self.penstock(["generate", str(trained.checkpoints()[-1]), "--tokens", "2", "--set",
                                 "memory.device=40KiB"], 1)

        self.assertEqual(refused.returncode, 3, refused.stdout)
        self.assertIn("start 2 ranks", refused.stdout)
        self.assertNotIn("recompute", refused.stdout)

    @long_under_sanitizers
    def test_a_modelled_run_is_told_what_its_models_say(self):
        deck = ROOT / "input/simulate/zb_h1_7b.yaml"
        capacity = "hardware.device.memory=16 GiB"
        refused = self.penstock(["simulate", str(deck), "--set", capacity])

        self.assertEqual(refused.returncode, 3, refused.stdout)
        settings, bytes_, _, _ = ALONE.findall(refused.stdout)[0]
        done = self.penstock(["simulate", str(deck), "--json", *shlex.split(settings)])
        most = max(rank["peak_device_bytes"] for rank in json.loads(done.stdout)["ranks"])
        self.assertEqual(most, int(bytes_))


if __name__ == "__main__":
    unittest.main()
