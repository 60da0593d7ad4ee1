"""penstock plan: the best layout comes out as a deck that simulate takes, and where nothing fits it says what would."""
import json
import os
import pty
import subprocess
import unittest

from support import PENSTOCK, ROOT, ApplicationTest, long_under_sanitizers

NODE = ROOT / "input" / "plan" / "llama_7b_node.yaml"


class Plan(ApplicationTest):
    def plan(self, *arguments, deck=NODE):
        self.planned = self.folder / "planned.yaml"
        return self.penstock(["plan", str(deck), "--output", str(self.planned), *arguments])

    def test_the_best_is_a_deck_whose_simulation_takes_as_long(self):
        planned = self.plan("--json")
        self.assertEqual(planned.returncode, 0, planned.stdout)
        best = json.loads(planned.stdout)["layouts"][0]
        simulated = self.penstock(["simulate", str(self.planned), "--json"])
        self.assertEqual(simulated.returncode, 0, simulated.stdout)
        step = json.loads(simulated.stdout)

        # Waits for memory, which the search leaves out, may only add.
        self.assertGreaterEqual(step["step_seconds"], best["step_seconds"] * (1 - 1e-9))
        self.assertLess(step["step_seconds"], best["step_seconds"] * 1.02)
        self.assertGreaterEqual(max(rank["peak_device_bytes"] for rank in step["ranks"]), best["peak_device_bytes"])

    @long_under_sanitizers
    def test_a_deck_that_stands_in_the_place_of_the_best_is_kept(self):
        planned = self.folder / "planned.yaml"
        planned.write_text("mine\n")

        first = self.plan()

        self.assertIn(f"what was in {planned} is now in {planned}.previous.1\n", first.stdout)
        self.assertEqual((self.folder / "planned.yaml.previous.1").read_text(), "mine\n")
        deck = planned.read_text()
        self.assertIn("previous.2", self.plan().stdout)
        self.assertEqual((self.folder / "planned.yaml.previous.2").read_text(), deck)

    def test_keys_that_the_best_has_no_use_for_are_not_in_its_deck(self):
        # Each asks for what only some of the kinds can do.
        asked = ("schedule.early_recompute=true", "schedule.weight_grain=product", "memory.parameters=device",
                 "memory.offload_activations=0.5")
        for kind in ("1f1b", "mobius"):
            with self.subTest(kind=kind):
                planned = self.plan(*(part for value in (f"plan.search.kinds=[{kind}]", *asked)
                                      for part in ("--set", value)))
                self.assertEqual(planned.returncode, 0, planned.stdout)
                simulated = self.penstock(["simulate", str(self.planned)])
                self.assertEqual(simulated.returncode, 0, simulated.stdout)

    @long_under_sanitizers
    def test_rows_are_in_the_order_of_their_steps_and_say_why_they_lost(self):
        planned = self.plan("--json")
        rows = json.loads(planned.stdout)["layouts"]
        steps = [row["step_seconds"] for row in rows]

        self.assertEqual(len(rows), 8)
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(rows[0]["why_it_lost"], "the best")
        self.assertIn("%", rows[-1]["why_it_lost"])

    def test_the_table_has_a_row_for_each_and_names_the_deck(self):
        planned = self.plan("--set", "plan.rows=3")
        self.assertEqual(planned.returncode, 0, planned.stdout)

        self.assertEqual(len([line for line in planned.stdout.splitlines() if " s  " in line]), 3)
        self.assertIn(f"penstock simulate {self.planned}", planned.stdout)

    @long_under_sanitizers
    def test_what_does_not_fit_ends_with_3_and_what_would_fit(self):
        refused = self.plan("--set", "hardware.device.memory=12 GiB", "--set", "plan.search.recompute=[none]")

        self.assertEqual(refused.returncode, 3, refused.stdout)
        self.assertIn("the closest needs at least", refused.stdout)
        self.assertIn("What would fit: ", refused.stdout)
        self.assertFalse(self.planned.exists())

    def test_devices_that_no_layout_uses_up_are_refused_with_the_rule(self):
        refused = self.plan("--set", "plan.devices=7", "--set", "plan.search.pipeline=[4]")

        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("pipeline x tensor x context x data is their number", refused.stdout)

    def test_a_terminal_sees_how_far_the_search_is_and_standard_output_does_not(self):
        terminal, program_end = pty.openpty()
        planned = subprocess.run([PENSTOCK, "plan", str(NODE), "--json", "--output", str(self.folder / "planned.yaml")],
                                 stdout=subprocess.PIPE, stderr=program_end, timeout=120, check=False)
        os.close(program_end)
        seen = os.read(terminal, 1 << 16).decode()
        os.close(terminal)

        self.assertEqual(planned.returncode, 0, seen)
        candidates = json.loads(planned.stdout)["candidates"]
        self.assertRegex(seen, rf"^\r\x1b\[K\d+ of {candidates} layouts, \d+ simulated, ")
        self.assertTrue(seen.endswith("\r\x1b[K"), seen)

    # Searches as wide as those of the decks take up to half a minute.
    NARROW = {
        "llama_7b_node.yaml": [],
        "llama_13b_rtx4090.yaml": ["kinds=[1f1b]", "context=[2]"],
        "llama_70b_h100.yaml": ["kinds=[slimpipe]", "pipeline=[16]", "tensor=[8]", "context=[2]", "virtual=[5]",
                                "slices=[128]", "recompute=[selective]", "offload_activations=[1]",
                                "exchange=[global]"],
    }

    @long_under_sanitizers
    def test_every_deck_plans_a_deck_that_names_its_hardware_wherever_it_lies(self):
        decks = sorted(NODE.parent.glob("*.yaml"))
        self.assertEqual({deck.name for deck in decks}, set(self.NARROW))
        for deck in decks:
            with self.subTest(deck=deck.name):
                narrow = [part for key in self.NARROW[deck.name] for part in ("--set", f"plan.search.{key}")]
                planned = self.plan(*narrow, deck=deck)
                self.assertEqual(planned.returncode, 0, planned.stdout)
                simulated = self.penstock(["simulate", str(self.planned)])
                self.assertEqual(simulated.returncode, 0, simulated.stdout)


if __name__ == "__main__":
    unittest.main()
