"""Interrupted runs go on as if they had not been interrupted, on any layout."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

import h5py

from support import PENSTOCK, ROOT, ApplicationTest, merged

SAVED = {"training": {"steps": 6, "validate_every": 3}, "output": {"checkpoint_every": 2, "keep": 3}}
RESUME = ["--resume", "auto"]


class Resume(ApplicationTest):
    def whole_run(self, changes=None):
        run = self.train(1, merged(SAVED, changes or {}))
        self.assert_finished(run)
        return run

    def test_auto_starts_fresh_and_then_goes_on_bitwise_on_another_layout(self):
        whole = self.whole_run()
        directory = self.folder / "resumed"
        first = self.train(2, merged(SAVED, {"training.steps": 2, "parallel.pipeline": 2}), RESUME, directory=directory)
        self.assertIn("no checkpoint", first.output)
        second = self.train(1, merged(SAVED, {"training.steps": 4}), RESUME, directory=directory)
        self.assertIn("after step 2", second.output)
        third = self.train(3, merged(SAVED, {"parallel.pipeline": 3, "schedule.kind": "gpipe"}), RESUME,
                           directory=directory)
        self.assertIn("after step 4", third.output)
        # Cosine decay depends on the total: the parts were trained towards other ends, so only the form is compared.
        self.assertEqual([row["step"] for row in third.metrics()], [row["step"] for row in whole.metrics()])

    def test_a_stopped_run_is_the_uninterrupted_one(self):
        whole = self.whole_run()
        directory = self.folder / "stopped"
        directory.mkdir()
        (directory / "stop").write_text("")
        stopped = self.train(2, merged(SAVED, {"parallel.pipeline": 2}), RESUME, directory=directory)
        self.assertEqual(stopped.code, 75, stopped.output)
        self.assertFalse((directory / "stop").exists())
        self.assertEqual(len(stopped.metrics()), 1)
        run = self.train(3, merged(SAVED, {"parallel.pipeline": 3}), RESUME, directory=directory)
        self.assert_same(run, whole)

    def test_tied_tables_and_bf16_resume_bitwise(self):
        model = {"model": {"precision": "bf16", "tie_embeddings": True}}
        whole = self.whole_run(model)
        directory = self.folder / "tied"
        directory.mkdir()
        (directory / "stop").write_text("")
        self.train(2, merged(SAVED, {**model, "parallel.pipeline": 2}), RESUME, directory=directory)
        run = self.train(1, merged(SAVED, model), RESUME, directory=directory)
        self.assert_same(run, whole)

    def test_replicas_save_and_load_each_others_checkpoints(self):
        directory = self.folder / "replicas"
        directory.mkdir()
        (directory / "stop").write_text("")
        two = self.train(4, merged(SAVED, {"parallel": {"pipeline": 2, "data": 2}}), RESUME, directory=directory)
        self.assertEqual(two.code, 75, two.output)
        three = self.train(3, merged(SAVED, {"parallel.data": 3}), RESUME, directory=directory)
        self.assert_finished(three)
        whole = self.whole_run()
        for (mine, *_), (exact, *_) in zip(three.losses(), whole.losses()):
            self.assertAlmostEqual(float(mine), float(exact), delta=2e-5)  # another order of adding gradients

    def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(self):
        whole = self.whole_run()
        *_, good, newest = whole.checkpoints()
        data = bytearray(newest.read_bytes())
        data[len(data) * 3 // 4] ^= 1
        newest.write_bytes(data)
        run = self.train(2, merged(SAVED, {"parallel.pipeline": 2}), RESUME, directory=whole.directory)
        self.assert_finished(run)
        self.assertIn(newest.name, run.output)
        self.assertIn(f"{good.name} after step 4", run.output)
        self.assertEqual((whole.directory / "previous.1" / "checkpoints" / newest.name).read_bytes(), data)
        named = self.train(1, SAVED, ["--resume", str(good)], directory=self.folder / "named")
        self.assert_finished(named)

    def test_a_truncated_checkpoint_given_by_name_is_refused(self):
        whole = self.whole_run()
        newest = whole.checkpoints()[-1]
        newest.write_bytes(newest.read_bytes()[:3000])
        run = self.train(2, merged(SAVED, {"parallel.pipeline": 2}), ["--resume", str(newest)])
        self.assertEqual(run.code, 4, run.output)
        self.assertIn(newest.name, run.output)

    def test_another_model_is_refused(self):
        whole = self.whole_run()
        run = self.train(1, merged(SAVED, {"model.hidden": 32}), ["--resume", str(whole.checkpoints()[-1])])
        self.assertEqual(run.code, 2, run.output)
        self.assertIn("hidden", run.output)

    def test_a_fresh_start_keeps_the_files_of_the_run_before(self):
        first = self.whole_run()
        losses = first.losses()
        again = self.train(1, merged(SAVED, {"training.seed": 8}), directory=first.directory)
        self.assert_finished(again)
        self.assertNotEqual(again.losses(), losses)
        self.assertTrue((first.directory / "previous.1" / "metrics.csv").exists())
        self.assertEqual(len(list((first.directory / "previous.1" / "checkpoints").iterdir())), 3)

    def test_a_start_that_is_refused_leaves_the_files_of_the_run_before(self):
        first = self.whole_run()
        kept = {path: path.read_bytes() for path in first.directory.rglob("*") if path.is_file()}
        wrong_ranks = self.train(2, SAVED, directory=first.directory)
        wrong_model = self.train(1, merged(SAVED, {"model.hidden": 32}), RESUME, directory=first.directory)
        too_big = self.train(1, merged(SAVED, {"memory.device": 1000}), directory=first.directory)
        self.assertEqual([wrong_ranks.code, wrong_model.code, too_big.code], [2, 2, 3])
        self.assertEqual({path: path.read_bytes() for path in first.directory.rglob("*") if path.is_file()}, kept)

    def test_a_run_that_is_over_keeps_its_summary(self):
        first = self.whole_run()
        summary = first.summary()
        again = self.train(1, SAVED, RESUME, directory=first.directory)
        self.assert_finished(again)
        self.assertEqual(first.summary(), summary)

    @staticmethod
    def names(folder):
        return sorted(path.name for path in folder.iterdir())

    def test_an_older_checkpoint_of_the_run_sets_aside_what_came_after_it(self):
        first = self.whole_run({"training.steps": 12})
        rows, last = first.metrics(), first.checkpoints()[-1].read_bytes()
        metrics, summary = [(first.directory / name).read_bytes() for name in ("metrics.csv", "summary.json")]
        older = first.checkpoints()[0]
        self.assertEqual(older.name, "step_00000008.h5")
        branch = merged(SAVED, {"training.steps": 11, "output": {"checkpoint_every": 1, "keep": 1}})
        second = self.train(2, merged(branch, {"parallel.pipeline": 2}), ["--resume", str(older)],
                            directory=first.directory)
        self.assert_finished(second)
        aside = first.directory / "previous.1"
        self.assertIn(f"2 checkpoints up to step 12, the rows of metrics.csv) is now in {aside}\n", second.output)
        self.assertEqual(self.names(aside), ["checkpoints", "deck.yaml", "metrics.csv", "summary.json"])
        self.assertEqual(self.names(aside / "checkpoints"), ["step_00000010.h5", "step_00000012.h5"])
        self.assertEqual((aside / "checkpoints" / "step_00000012.h5").read_bytes(), last)
        self.assertEqual([(aside / name).read_bytes() for name in ("metrics.csv", "summary.json")], [metrics, summary])
        self.assertEqual(self.names(first.directory / "checkpoints"), ["step_00000011.h5"])
        self.assertEqual([row["step"] for row in second.metrics()], [str(step) for step in range(1, 12)])
        self.assertEqual(second.metrics()[:8], rows[:8])
        third = self.train(1, merged(branch, {"training.steps": 12}), RESUME, directory=first.directory)
        self.assert_finished(third)
        self.assertIn("after step 11", third.output)
        self.assertFalse((first.directory / "previous.2").exists())

    def test_a_checkpoint_of_another_folder_begins_a_run_of_its_own(self):
        whole = self.whole_run()
        other = self.whole_run({"training.seed": 8})
        rows = other.metrics()
        run = self.train(1, SAVED, ["--resume", str(whole.checkpoints()[1])], directory=other.directory)
        self.assert_finished(run)
        aside = other.directory / "previous.1"
        self.assertIn(f"the files of an earlier run are now in {aside}\n", run.output)
        self.assertEqual(len(self.names(aside / "checkpoints")), 3)
        self.assertEqual([row["step"] for row in run.metrics()], ["5", "6"])
        self.assertEqual(run.losses(), whole.losses()[4:])
        self.assertEqual(len((aside / "metrics.csv").read_text().splitlines()), 1 + len(rows))
        self.assertEqual(self.names(other.directory / "checkpoints"), ["step_00000006.h5"])
        self.assertEqual(self.names(whole.directory / "checkpoints"),
                         ["step_00000002.h5", "step_00000004.h5", "step_00000006.h5"])

    def test_tokens_are_those_trained_on_whatever_the_batches_were(self):
        first = self.whole_run({"training.steps": 2})
        changes = merged(SAVED, {"training": {"steps": 4, "global_batch": 3, "sequence": 10}})
        second = self.train(1, changes, RESUME, directory=first.directory)
        self.assert_finished(second)
        third = self.train(1, merged(changes, {"training": {"steps": 5, "global_batch": 6}}), RESUME,
                           directory=first.directory)
        self.assert_finished(third)
        self.assertEqual([int(row["tokens"]) for row in third.metrics()], [120, 240, 270, 300, 360])
        self.assertEqual(third.summary()["tokens"], 360)
        with h5py.File(third.checkpoints()[-1]) as file:
            self.assertEqual(int(file.attrs["tokens"]), 360)

    def test_samples_go_on_behind_those_taken_whatever_the_batches_are(self):
        # A rate that moves no weight: the loss of a step is that of its samples.
        still = {"training.learning_rate": {"peak": 1e-30, "warmup": 0, "decay": "constant"}}
        whole = self.whole_run(merged(still, {"training.steps": 3}))
        first = self.whole_run(merged(still, {"training.steps": 2}))
        second = self.train(1, merged(SAVED, merged(still, {"training": {"steps": 4, "global_batch": 3}})), RESUME,
                            directory=first.directory)
        self.assert_finished(second)
        self.assertIn("the samples go on behind those taken so far", second.output)

        *_, halves, rest = (float(row["loss"]) for row in second.metrics())
        self.assertAlmostEqual((halves + rest) / 2, float(whole.metrics()[2]["loss"]), places=6)
        self.assertNotAlmostEqual(halves, float(whole.metrics()[2]["loss"]), places=5)
        with h5py.File(second.checkpoints()[-1]) as file:
            self.assertEqual(int(file.attrs["data_position"]), 2 * 6 + 2 * 3)

    def test_a_second_run_in_the_folder_is_refused_until_the_first_has_ended(self):
        directory = self.folder / "shared"
        changes = merged(SAVED, {"training.steps": 100000, "parallel.pipeline": 2})
        process = self.start(2, changes, directory)
        try:
            self.wait_for_rows(directory, 3)
            holder = (directory / "run.lock").read_text()
            first_rank = int(re.fullmatch(rf"process (\d+) on host {re.escape(socket.gethostname())}\n", holder)[1])
            self.assertIn("penstock", pathlib.Path(f"/proc/{first_rank}/cmdline").read_text())
            priced = {"device": {"kind": "priced", "time_scale": 0.001}, "memory.device": "80 GiB"}
            for other, arguments in (({}, []), ({}, RESUME), (priced, [])):
                second = self.train(2, merged(SAVED, {"parallel.pipeline": 2, **other}), arguments, directory=directory)
                self.assertEqual(second.code, 2, second.output)
                self.assertIn(holder.strip(), second.output)
            self.assertFalse((directory / "previous.1").exists())
            self.assertIsNone(process.poll())
            os.kill(first_rank, signal.SIGKILL)
        finally:
            output, _ = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0, output)
        again = self.train(1, merged(SAVED, {"training.steps": 1}), directory=directory)
        self.assert_finished(again)
        self.assertEqual((directory / "run.lock").read_text(), "")

    def start(self, ranks, changes, directory):
        deck = self.deck(merged({"output.directory": str(directory)}, changes), "started.yaml")
        command = [str(ROOT / "scripts/mpirun.sh"), "-n", str(ranks), PENSTOCK, "train", str(deck), *RESUME]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for_rows(self, directory, rows):
        for _ in range(600):
            path = directory / "metrics.csv"
            if path.exists() and len(path.read_text().splitlines()) > rows:
                return
            time.sleep(0.05)
        self.fail("the run did not get going")

    def test_signal_usr1_to_mpirun_checkpoints_and_asks_to_submit_again(self):
        directory = self.folder / "signalled"
        changes = merged(SAVED, {"training.steps": 100000, "parallel.pipeline": 2, "output.checkpoint_every": 0})
        process = self.start(2, changes, directory)
        self.wait_for_rows(directory, 2)
        process.send_signal(signal.SIGUSR1)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, output)
        newest = sorted((directory / "checkpoints").iterdir())[-1]
        with h5py.File(newest) as file:
            step = int(file.attrs["step"])
        self.assertEqual(len((directory / "metrics.csv").read_text().splitlines()), step + 1)

    def test_killed_ranks_lose_only_what_came_after_the_last_checkpoint(self):
        whole = self.whole_run({"training.steps": 40, "output.checkpoint_every": 1})
        directory = self.folder / "killed"
        changes = merged(SAVED, {"training.steps": 40, "parallel.pipeline": 2, "output.checkpoint_every": 1})
        for rows in (3, 9):
            process = self.start(2, changes, directory)
            self.wait_for_rows(directory, rows)
            subprocess.run(["pkill", "-KILL", "-f", f"{PENSTOCK} train {self.folder}/started.yaml"], check=False)
            process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
        run = self.train(3, merged(changes, {"parallel.pipeline": 3}), RESUME, directory=directory)
        self.assert_same(run, whole)


if __name__ == "__main__":
    unittest.main()
