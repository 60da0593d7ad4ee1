"""Hundreds of steps with random delays in every lane have the bits of the undelayed run."""
import unittest

from support import ApplicationTest, merged


class Delays(ApplicationTest):
    def test_five_hundred_steps_of_decoupled_passes_under_random_delays(self):
        changes = {"training": {"steps": 500, "validate_every": 100}, "output.checkpoint_every": 500}
        whole = self.train(1, changes)
        self.assert_finished(whole)
        run = self.train(4, merged(changes, {"parallel.pipeline": 4, "schedule": {"kind": "spipe", "backward_stages": 5},
                                             "testing.delays": {"seed": 11, "longest": 0.002}}), timeout=400)
        self.assert_finished(run)
        self.assertEqual(len(run.losses()), 500)
        self.assert_same(run, whole)


if __name__ == "__main__":
    unittest.main()
