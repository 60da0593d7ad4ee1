"""What a forward keeps, by memory.recompute: the device's peak falls as it is planned, in train, check and simulate."""
import json
import unittest

from support import ApplicationTest, merged

# Wide and long enough that activations decide; the first rank keeps those of three micro-batches. With several layers
# a stage, or slices, R fills more at once than what `layers` keeps and forms again.
WIDE = {"model": {"hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "layers": 3},
        "parallel.pipeline": 3,
        "training": {"steps": 2, "sequence": 128, "global_batch": 3, "validate_every": 0}}
MODES = ["none", "attention", "selective", "layers", "full"]


class RecomputeTest(ApplicationTest):
    def peaks(self, changes):
        """Measured bytes of each rank, which are those planned."""
        run = self.train(3, merged(WIDE, changes))
        self.assert_finished(run)
        self.assert_planned(run)
        return run.losses(), [rank["peak_device_bytes"] for rank in run.summary()["ranks"]]

    def assert_falls(self, changes, modes):
        runs = [self.peaks(merged(changes, {"memory.recompute": mode})) for mode in modes]
        for losses, _ in runs[1:]:
            self.assertEqual(losses, runs[0][0])
        of_first_rank = [peaks[0] for _, peaks in runs]
        self.assertEqual(of_first_rank, sorted(set(of_first_rank), reverse=True))

    def test_the_peak_falls_from_mode_to_mode(self):
        self.assert_falls({}, MODES)

    def test_the_peak_falls_with_slices(self):
        self.assert_falls({"schedule": {"kind": "terapipe", "slices": 4}},
                          ["none", "attention", "selective", "full", "layers"])

    def test_each_stage_has_the_peak_of_its_mode(self):
        _, none = self.peaks({})
        _, full = self.peaks({"memory.recompute": "full"})
        _, listed = self.peaks({"memory.recompute_by_stage": ["full", "none", "full"]})
        self.assertEqual(listed, [full[0], none[1], full[2]])

    def test_a_list_of_another_length_is_refused_with_numbers(self):
        for command in ("check", "simulate"):
            deck = self.deck(merged(WIDE, {"memory.recompute_by_stage": ["full", "none"]}))
            refused = self.penstock([command, str(deck)])
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn("memory.recompute_by_stage: has 2 entries; pipeline 3 x virtual 1 = 3 stages: give one for each",
                          refused.stdout)

    def test_a_list_that_does_not_match_a_schedule_file_is_refused_with_numbers(self):
        (self.folder / "two.csv").write_text("0F0,,,0B0\n,1F0,1B0,\n")
        deck = self.deck(merged(WIDE, {"parallel.pipeline": 2, "schedule": {"file": str(self.folder / "two.csv")},
                                       "training.global_batch": 1, "memory.recompute_by_stage": ["full"]}))
        for command in ("check", "simulate"):
            refused = self.penstock([command, str(deck)])
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn("memory.recompute_by_stage has 1 entry, but the backward pass of schedule", refused.stdout)

    def test_the_simulated_peak_falls_as_well(self):
        peaks = []
        for mode in MODES:
            deck = self.deck(merged(WIDE, {"memory.recompute": mode}))
            simulated = self.penstock(["simulate", str(deck), "--json"])
            self.assertEqual(simulated.returncode, 0, simulated.stdout)
            peaks.append(json.loads(simulated.stdout)["ranks"][0]["peak_device_bytes"])
        self.assertEqual(peaks, sorted(set(peaks), reverse=True))


if __name__ == "__main__":
    unittest.main()
