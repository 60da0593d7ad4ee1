"""Ranks killed at chosen points of a step: the job ends at once, nothing is left, and the resumed run has the bits of one that
nobody disturbed.

Every op of every rank has its turn, at one of its actions; a rank at a time, each run going on where the one before died.
KILLS_SEED in the environment chooses other actions (scripts/soak.sh).
"""
import csv
import os
import pathlib
import random
import re
import unittest

from support import ApplicationTest, merged, long_under_sanitizers

LONGEST_DEATH = 30  # seconds of a run from its start: MPI's own, some steps, and the end of the other ranks
BASE = {"training": {"global_batch": 3, "validate_every": 0}, "output": {"checkpoint_every": 1, "keep": 2}}
SPIPE = {"parallel.pipeline": 3, "schedule": {"kind": "spipe", "backward_stages": 5}, "training.clip_mode": "speculative"}
PLAIN = {"parallel.pipeline": 2, "schedule.kind": "1f1b"}
CHECKPOINT = "CHECKPOINT"
AT_ONCE = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}  # else mpirun waits two seconds for the ranks that it ends


def shared_memory():
    """What has a name in shared memory; MPI's own segments, of whatever job, are not the program's."""
    return {path for path in pathlib.Path("/dev/shm").iterdir()
            if path.is_file() and not path.name.startswith("vader_segment")}


def processes_of(folder):
    """Those with the folder in their command: nothing without a name can outlive them."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            pass  # it ended meanwhile
    return found


class Kills(ApplicationTest):
    def points(self, ranks, layout):
        """(rank, action): one action of each op of each rank, and its part of a checkpoint."""
        dice = random.Random(os.environ.get("KILLS_SEED", "1"))
        path = self.folder / "schedule.csv"
        shown = self.penstock(["show", str(self.deck(merged(BASE, layout))), "--csv", str(path)])
        self.assertEqual(shown.returncode, 0, shown.stdout)
        points = []
        for rank, row in enumerate(csv.reader(path.read_text().splitlines())):
            by_op = {}
            for cell in filter(None, row):
                by_op.setdefault(re.search("[A-Z_]+", cell)[0], []).append(cell)
            points += [(rank, dice.choice(actions)) for actions in by_op.values()] + [(rank, CHECKPOINT)]
        self.assertEqual(len({rank for rank, _ in points}), ranks)
        return points

    def check(self, layout, ops, last_layout):
        """`ops`: how many ops the ranks have together. Who is killed no more goes on with `last_layout`."""
        ranks = layout["parallel.pipeline"]
        points = self.points(ranks, layout)
        self.assertEqual(len({re.search("[A-Z_]+", action)[0] for _, action in points} - {CHECKPOINT}), ops)
        # A run does a whole step, and with it the checkpoint of the step before, ere it dies in the next.
        changes = merged(merged(BASE, layout), {"training.steps": len(points) + 2})
        directory = self.folder / "killed"
        before, left = shared_memory(), set()
        for number, (rank, action) in enumerate(points):
            with self.subTest(rank=rank, action=action):
                step = number + (1 if action == CHECKPOINT else 2)
                self.assert_killed(ranks, changes, directory, {"step": step, "rank": rank, "action": action})
                self.assertEqual(processes_of(self.folder), [])
                left |= shared_memory() - before
        self.assertEqual(left & shared_memory(), set())  # what other programs had meanwhile is gone
        last = merged(changes, last_layout)
        run = self.train(last["parallel"]["pipeline"], last, ["--resume", "auto"], directory=directory)
        self.assert_finished(run)
        self.assertIn("resume:", run.output)
        whole = self.train(ranks, changes)
        self.assert_finished(whole)
        norms = [float(row["grad_norm"]) for row in whole.metrics()]
        self.assertTrue(min(norms) < 1 < max(norms), norms)  # of training.clip's default: some steps are taken back
        self.assertEqual(run.losses(), whole.losses())
        self.assertEqual(run.weights(), whole.weights())

    def assert_killed(self, ranks, changes, directory, kill):
        run = self.train(ranks, merged(changes, {"testing.kill": kill}), ["--resume", "auto"], AT_ONCE, directory,
                         LONGEST_DEATH)
        self.assertEqual(run.code, 137, run.output)
        self.assertRegex(run.output, rf"process rank {kill['rank']} .* exited on signal 9")
        if kill["action"] == CHECKPOINT:
            names = [path.name for path in run.checkpoints()]
            self.assertNotIn(f"step_{kill['step']:08}.h5", names)
            self.assertTrue((directory / "checkpoints" / f"step_{kill['step']:08}.h5.partial").exists())

    @long_under_sanitizers
    def test_spipe_with_parameters_from_the_host_and_steps_before_the_norm(self):
        self.check(SPIPE, ops=18, last_layout={"parallel.pipeline": 2})

    def test_plain_1f1b(self):
        self.check(PLAIN, ops=11, last_layout=PLAIN)

    def test_places_that_no_step_comes_to_are_refused(self):
        for action, expected in (("R", "rank 1 has no action R in a step; it has RECV_F, F, B, "),
                                 ("7B0", "rank 1 has no action 7B0"), (CHECKPOINT, "no checkpoint follows step 1")):
            deck = self.deck(merged(PLAIN, {"testing.kill": {"step": 1, "rank": 1, "action": action}}))
            checked = self.penstock(["check", str(deck)])
            self.assertEqual(checked.returncode, 2, checked.stdout)
            self.assertIn(expected, checked.stdout)


if __name__ == "__main__":
    unittest.main()
