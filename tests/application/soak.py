"""One round of scripts/soak.sh: random layouts, delays and kills, chosen by SOAK_SEED; the bits must be those of a quiet run."""
import os
import random
import subprocess
import time
import unittest

from support import PENSTOCK, ROOT, ApplicationTest, merged

STEPS = 30


class Soak(ApplicationTest):
    def test_disturbed_runs_have_the_bits_of_a_quiet_one(self):
        dice = random.Random(int(os.environ.get("SOAK_SEED", "1")))
        base = {"training": {"steps": STEPS, "validate_every": 10}, "output": {"checkpoint_every": 3},
                "model": {"precision": dice.choice(["fp32", "bf16"]), "tie_embeddings": dice.random() < 0.5}}
        quiet = self.train(1, base)
        self.assert_finished(quiet)
        directory = self.folder / "disturbed"
        for _ in range(4):
            self.run_and_kill(dice, base, directory)
        last = self.train(*self.layout(dice, base), ["--resume", "auto"], directory=directory)
        self.assert_finished(last)
        self.assertEqual(last.losses(), quiet.losses())
        self.assertEqual(last.weights(), quiet.weights())

    def layout(self, dice, base):
        ranks = dice.randint(1, 5)
        kind = dice.choice(["1f1b", "gpipe"])
        return ranks, merged(base, {
            "parallel.pipeline": ranks, "schedule.kind": kind, "device.threads": dice.randint(1, 2),
            "memory.recompute": dice.choice(["none", "full"]),
            "testing.delays": {"seed": dice.randint(1, 1000), "longest": 0.003}})

    def run_and_kill(self, dice, base, directory):
        ranks, changes = self.layout(dice, base)
        deck = self.deck(merged(changes, {"output.directory": str(directory)}), "killed.yaml")
        process = subprocess.Popen([str(ROOT / "scripts/mpirun.sh"), "-n", str(ranks), PENSTOCK, "train", str(deck),
                                    "--resume", "auto"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0.5, 5))
        subprocess.run(["pkill", "-KILL", "-f", f"train {deck}"], check=False)
        process.wait(timeout=60)


if __name__ == "__main__":
    unittest.main()
