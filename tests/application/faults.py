"""Bad input: the exit code of the design, a sentence that helps, and nothing lost."""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

from support import PENSTOCK, ROOT, TEXT, ApplicationTest, merged


class Faults(ApplicationTest):
    def assert_refused(self, run, code, *words):
        self.assertEqual(run.code if hasattr(run, "code") else run.returncode, code, run.output if hasattr(run, "output") else run.stdout)
        text = run.output if hasattr(run, "output") else run.stdout
        for word in words:
            self.assertIn(word, text)

    def test_all_faults_of_a_deck_are_listed_at_once_with_their_places(self):
        deck = self.folder / "faulty.yaml"
        deck.write_text("model:\n  layerz: 4\n  heads: many\ntraining:\n  steps: -1\ndata:\n  train: []\n")
        self.assert_refused(self.penstock(["check", str(deck)]), 2, "faulty.yaml:2:3", "layers", "faulty.yaml:3:10",
                            "faulty.yaml:5:10")
        self.assert_refused(self.penstock(["train", str(deck)], 2), 2, "faulty.yaml:2:3", "faulty.yaml:5:10")

    def test_a_missing_deck_and_a_missing_option(self):
        self.assert_refused(self.penstock(["train", str(self.folder / "none.yaml")], 1), 2, "none.yaml")
        self.assert_refused(self.penstock(["train"]), 2, "deck")
        self.assert_refused(self.penstock(["dance"]), 2, "no command `dance`", "train, check, simulate")
        self.assert_refused(self.penstock(["trian"]), 2, "there is no command `trian`; did you mean `train`?")
        self.assert_refused(self.penstock([]), 2)

    def test_batch_identity_is_shown_with_its_numbers(self):
        run = self.penstock(["check", str(self.deck({"training.micro_batch": 4}))])
        self.assert_refused(run, 2, "6", "4")

    def test_more_stages_than_layers(self):
        self.assert_refused(self.train(6, {"parallel.pipeline": 6}), 2, "5", "6")

    def test_ranks_that_do_not_match_the_layout(self):
        self.assert_refused(self.train(3, {"parallel.pipeline": 2}), 2, "3 ranks", "mpirun -n 2")

    def test_ranks_with_different_decks(self):
        one, other = self.deck({"parallel.pipeline": 2}, "one.yaml"), self.deck(
            {"parallel.pipeline": 2, "training.seed": 8}, "other.yaml")
        program = self.penstock(["train", str(one), ":", "-n", "1", PENSTOCK, "train",
                                 str(other)], 1)
        self.assert_refused(program, 2, "rank 1", "deck hash")

    def test_ranks_with_different_lists(self):
        # The decks are the same, but the hardware beside them is not, and so neither is the place of weight gradients.
        changes = {"parallel.pipeline": 2, "hardware": "machine.yaml", "output.directory": str(self.folder / "run"),
                   "schedule": {"kind": "seq1f1b", "slices": 5, "weight_gradients": "placed", "weight_grain": "product"}}
        decks = []
        for machine in ("unit", "rtx4090"):
            folder = self.folder / machine
            folder.mkdir()
            hardware = (ROOT / f"input/hardware/{machine}.yaml").read_text()
            (folder / "machine.yaml").write_text(hardware)
            decks.append(str(self.deck(changes, f"{machine}/deck.yaml")))
        alike = self.penstock(["train", decks[0], ":", "-n", "1", PENSTOCK, "train", decks[0]], 1)
        self.assert_refused(alike, 0)
        different = self.penstock(["train", decks[0], ":", "-n", "1", PENSTOCK, "train", decks[1]], 1)
        self.assert_refused(different, 2, "rank 1", "another schedule than rank 0")

    def test_a_device_that_is_too_small_is_refused_before_anything_is_allocated(self):
        for run in (self.train(2, {"parallel.pipeline": 2, "memory.device": "100 KiB"}),
                    self.penstock(["check", str(self.deck({"memory.device": "100 KiB"}))])):
            self.assert_refused(run, 3, "parameters", "activations", "memory.device")

    def test_a_device_of_exactly_the_planned_size_is_enough(self):
        plan = json.loads(self.penstock(["check", "--json", str(self.deck())]).stdout)
        bytes_needed = plan["ranks"][0]["planned_device_bytes"]
        run = self.train(1, {"memory.device": bytes_needed})
        self.assertEqual(run.code, 0, run.output)
        self.assert_refused(self.train(1, {"memory.device": bytes_needed - 1}), 3)

    def test_a_node_that_is_too_small_is_refused_before_anything_is_allocated(self):
        changes = {"parallel.pipeline": 2, "training.clip_mode": "speculative"}
        plan = json.loads(self.penstock(["check", "--json", str(self.deck(changes))]).stdout)
        needed = plan["node_host_bytes"]
        self.assertEqual(plan["node_ranks"], 2)
        self.assertGreater(needed, sum(rank["planned_host_bytes"] for rank in plan["ranks"]))
        self.assertEqual(self.train(2, merged(changes, {"memory.host": needed})).code, 0)
        for run in (self.train(2, merged(changes, {"memory.host": needed - 1})),
                    self.penstock(["check", str(self.deck(merged(changes, {"memory.host": needed - 1})))])):
            self.assert_refused(run, 3, "a node with 2 ranks needs", "masters and moments", "memory.rollback=inverse",
                                "memory.host")

    def test_memory_of_nodes_that_one_machine_passes_for_is_counted_for_each(self):
        changes = {"parallel": {"pipeline": 4, "ranks_per_node": 2}, "memory.host": "8 TiB"}
        told = self.penstock(["check", str(self.deck(changes)), "--json"])
        self.assertEqual(told.returncode, 0, told.stdout)
        plan = json.loads(told.stdout)
        self.assertEqual(plan["node_ranks"], 2)
        changes["memory.host"] = plan["node_host_bytes"]
        self.assert_finished(self.train(4, changes))
        self.assert_refused(self.train(4, {**changes, "memory.host": plan["node_host_bytes"] - 1}), 3,
                            "a node with 2 ranks needs")

    def test_too_little_text(self):
        for size, code in ((5, 2), (20, 2), (21, 0)):
            (self.folder / "short.txt").write_text("x" * size)
            run = self.train(1, {"data.train": [str(self.folder / "short.txt")]})
            self.assertEqual(run.code, code, run.output)
        self.assert_refused(self.train(1, {"data.train": [str(self.folder / "nothing_here")]}), 2, "nothing_here")

    def test_check_opens_the_data_and_says_what_train_says(self):
        sound = self.penstock(["check", str(self.deck())])
        self.assert_refused(sound, 0, "data.train: text, 1 file", "the data can be read; start 1 rank\n")
        (self.folder / "short.txt").write_text("x" * 20)
        (self.folder / "cut.bin").write_bytes(b"\x00" * 100)
        for name, code in (("gone.txt", 2), ("short.txt", 2), ("cut.bin", 4)):
            with self.subTest(data=name):
                changes = {"data.train": [str(self.folder / name)]}
                checked, trained = self.penstock(["check", str(self.deck(changes))]), self.train(1, changes)
                said = [line for line in trained.output.splitlines() if line.startswith("error: ")]
                self.assertEqual(len(said), 1, trained.output)
                self.assert_refused(checked, code, said[0])
                self.assertEqual(trained.code, code)

    def test_a_token_file_that_is_cut_off(self):
        (self.folder / "cut.bin").write_bytes(b"\x00" * 100)
        self.assert_refused(self.train(2, {"parallel.pipeline": 2, "data.train": [str(self.folder / "cut.bin")]}), 4, "cut.bin")

    def schedule(self, text):
        (self.folder / "schedule.csv").write_text(text)
        return {"parallel.pipeline": 2, "schedule": {"file": str(self.folder / "schedule.csv")},
                "training": {"global_batch": 2, "micro_batch": 1}}

    def test_schedule_files_with_faults(self):
        good = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
        self.assert_finished(self.train(2, self.schedule(good)))
        cases = {
            "unknown op": ("0F0,0F1,0X0,0B1\n1F0,1F1,1B0,1B1\n", ("row 1", "cell 3")),
            "cycle": ("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", ("shortest cycle",)),
            "missing receive": ("0F0,0SEND_F0,0F1,0SEND_F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", ("RECV",)),
            "no backward": ("0F0,0F1\n1F0,1F1\n", ("forwards only",)),
            "missing action": ("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n", ("1B1",)),
        }
        for name, (text, words) in cases.items():
            with self.subTest(case=name):
                run = self.train(2, self.schedule(text))
                self.assertIn(run.code, (2, 4), run.output)
                for word in words:
                    self.assertIn(word, run.output)

    def test_slices_need_a_schedule_that_cuts_and_tokens_to_cut(self):
        changes = {"parallel.pipeline": 2, "schedule": {"kind": "svpp", "virtual": 2, "slices": 4}}
        for broken in ({"schedule.kind": "1f1b", "schedule.virtual": 1}, {"schedule.slices": 21},
                       {"schedule.kind": "slimpipe", "schedule.slices": 5}):
            with self.subTest(broken=broken):
                self.assert_refused(self.train(2, merged(changes, broken)), 2, "schedule.slices")
        shown = self.penstock(["show", str(self.deck(changes)), "--actions"])
        self.assertEqual(shown.returncode, 0, shown.stdout)
        self.assertIn("svpp v=2 n=4: 2 ranks, 4 stages, 6 micro-batches, 4 slices; bubble 2.04 %", shown.stdout)
        self.assertIn(" 3B0.3 3SEND_B0.3 ", shown.stdout)

    def test_gradients_that_are_not_finite_stop_with_step_and_tensor(self):
        run = self.train(2, {"parallel.pipeline": 2, "testing.non_finite_steps": [2]})
        self.assert_refused(run, 5, "step 2", "embedding/token/weight")
        self.assertEqual(run.output.count("rank 0: error"), 0, run.output)
        self.assertEqual(len(run.metrics()), 1)
        summary = run.summary()
        self.assertEqual((summary["exit_code"], summary["completed_steps"], len(summary["ranks"])), (5, 1, 2))
        self.assertIn("embedding/token/weight", summary["reason"])

    def test_steps_that_are_not_finite_can_be_skipped(self):
        run = self.train(2, {"parallel.pipeline": 2, "testing.non_finite_steps": [2], "training.non_finite": "skip"})
        self.assert_finished(run)
        self.assertEqual([row["skipped"] for row in run.metrics()], ["0", "1", "0"])

    def test_a_diverging_run_stops(self):
        run = self.train(1, {"training.learning_rate.peak": 1e30, "training.clip": 0, "training.steps": 30})
        self.assertEqual(run.code, 5, run.output)

    def test_a_rank_without_progress_ends_the_job(self):
        run = self.train(2, {"parallel.pipeline": 2, "training.watchdog": 1, "testing.delays": {"seed": 1, "longest": 20}})
        self.assert_refused(run, 6, "no progress", "waiting for")
        self.assertRegex(run.output, r"waiting for .* (of|in) (step \d|the validation after step 2)\n")
        self.assertEqual(run.summary()["exit_code"], 6)
        self.assertRegex(run.summary()["reason"], r"^rank \d: no progress")

    def test_a_full_disk_ends_the_run_with_a_sentence_and_a_summary(self):
        # A limit of the size of files stands for the disk: 16 MiB are enough for all but the checkpoint.
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 24, 1 << 24))"
        wrapper = self.folder / "limited.py"
        wrapper.write_text(f"import os, sys\n{limit}\nos.execv(sys.argv[1], sys.argv[1:])\n")
        directory = self.folder / "full"
        deck = self.deck({"model": {"hidden": 192, "ffn": 512},
                          "output": {"directory": str(directory), "checkpoint_every": 2}})
        program = subprocess.run([sys.executable, str(wrapper), PENSTOCK, "train", str(deck)], text=True,
                                 timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assert_refused(program, 74, "step_00000002.h5", "free some")
        summary = json.loads((directory / "summary.json").read_text())
        self.assertEqual((summary["exit_code"], summary["completed_steps"]), (74, 3))  # told at the next checkpoint

    def test_metrics_that_cannot_be_written_end_the_run_in_order(self):
        directory = self.folder / "metrics"
        deck = self.deck({"parallel.pipeline": 2, "training.steps": 100000, "training.validate_every": 0,
                          "output": {"directory": str(directory)}})
        # Started by Python, which ignores the signal of the limit below: writes fail, as on a full disk.
        wrapper = self.folder / "started.py"
        wrapper.write_text("import os, sys\nos.execv(sys.argv[1], sys.argv[1:])\n")
        program = subprocess.Popen([str(ROOT / "scripts/mpirun.sh"), "-n", "2", sys.executable, str(wrapper), PENSTOCK,
                                    "train", str(deck)], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        try:
            first = self.rank_of(directory, 0)
            # More than the summary, less than the metrics.
            resource.prlimit(first, resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
            output, _ = program.communicate(timeout=120)
        finally:
            program.kill()
        self.assertEqual(program.returncode, 74, output)
        self.assertRegex(output, "error: rank 0: .*metrics.csv")
        summary = json.loads((directory / "summary.json").read_text())
        self.assertEqual((summary["exit_code"], len(summary["ranks"])), (74, 2))

    def test_a_folder_that_is_gone_ends_the_run_as_a_file_that_cannot_be_written(self):
        for every in (0, 1):
            with self.subTest(checkpoint_every=every):
                directory = self.folder / f"gone{every}"
                deck = self.deck({"parallel.pipeline": 2, "training.steps": 100000, "training.validate_every": 0,
                                  "output": {"directory": str(directory), "checkpoint_every": every}})
                program = subprocess.Popen([str(ROOT / "scripts/mpirun.sh"), "-n", "2", PENSTOCK, "train", str(deck)], text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                try:
                    self.rank_of(directory, 0)
                    directory.rename(self.folder / f"moved{every}")
                    output, _ = program.communicate(timeout=120)
                finally:
                    program.kill()
                self.assertEqual(program.returncode, 74, output)
                self.assertRegex(output, f"error: .*{directory}")
                self.assertFalse(directory.exists())

    def test_places_that_cannot_be_written(self):
        run = self.train(1, {"output.trace": True})
        deck, trace, nowhere = str(self.deck()), str(run.directory / "trace.h5"), "/proc/nowhere/file"
        unit = ["--set", f"hardware={ROOT}/input/hardware/unit.yaml"]
        for arguments in (["train", deck, "--set", "output.directory=/proc/nowhere"],
                          ["train", deck, "--set", "output.directory=/proc/nowhere", "--resume", "auto"],
                          ["simulate", deck, *unit, "--trace", nowhere], ["simulate", deck, *unit, "--svg", nowhere],
                          ["trace", trace, "--chrome", nowhere], ["trace", trace, "--svg", nowhere],
                          ["show", deck, "--csv", nowhere], ["measure", "--output", nowhere]):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.penstock(arguments), 74, "/proc/nowhere", "No such file or directory")

    def test_every_exit_code_is_in_the_help(self):
        codes = re.findall(r"(?:codes:|;)\s+(\d+)\s", self.penstock(["--help"]).stdout)
        self.assertEqual(codes, ["0", "1", "2", "3", "4", "5", "6", "74", "75"])

    def test_a_validation_that_stands_still_is_named(self):
        # A rank that is stopped between two batches, now and then, leaves the others waiting in no action.
        for attempt in range(5):
            output = self.stopped_in_validation(self.folder / f"stands{attempt}")
            self.assertRegex(output, r"rank 0: error: no progress .* waiting for .* (of|in) the validation after step 3\n")
            self.assertNotIn("rank 1: error: no progress", output)
            if "waiting for other ranks or files in the validation" not in output:
                break
        self.assertRegex(output, r"rank 0: error: no progress .* 0SEND_F\d+ \(send lane, rank 1\)")

    def stopped_in_validation(self, directory):
        """What a run says whose last rank is stopped in its long validation."""
        (self.folder / "long.txt").write_text(TEXT * 200)  # minutes of validation behind steps of milliseconds
        deck = self.deck({"parallel.pipeline": 2, "data.validation": [str(self.folder / "long.txt")],
                          "training": {"validate_every": 3, "watchdog": 5}, "output": {"directory": str(directory)}})
        program = subprocess.Popen([str(ROOT / "scripts/mpirun.sh"), "-n", "2", PENSTOCK, "train", str(deck)],
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            last = self.rank_of(directory, 1)
            time.sleep(2)  # the third step is over
            os.kill(last, signal.SIGSTOP)
            output, _ = program.communicate(timeout=120)
        finally:
            program.kill()
        self.assertEqual(program.returncode, 6, output)
        return output

    def rank_of(self, directory, rank):
        """The process of a rank, once rank 0 has written metrics."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            path = directory / "metrics.csv"
            if path.exists() and len(path.read_text().splitlines()) > 2:
                break
            time.sleep(0.05)
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in words and str(self.folder).encode() in b" ".join(arguments):
                return int(folder.name)
        self.fail(f"rank {rank} is not to be found")

    def test_an_option_that_a_command_does_not_have_is_named_first(self):
        deck = str(self.deck())
        self.assert_refused(self.penstock(["train", deck, "--stes", "3"]), 2, "train has no option `--stes`", "--resume",
                            "did you mean --set training.steps=...?")
        self.assert_refused(self.penstock(["trace", "a", "--svgg", "b.svg"]), 2, "trace has no option `--svgg`", "--svg")
        self.assert_refused(self.penstock(["check", deck, "more"]), 2, "`more` is one argument too many for check")

    def test_a_bad_command_line_is_told_by_one_rank(self):
        for words in (["trian"], ["train"], ["train", str(self.deck()), "--stes", "3"]):
            with self.subTest(words=words):
                told = self.penstock(words, 2)
                self.assertEqual(told.returncode, 2, told.stdout)
                alone = self.penstock(words).stdout.splitlines()[0]
                self.assertEqual(told.stdout.count(alone), 1, told.stdout)

    def test_override_of_an_unknown_key(self):
        run = self.penstock(["check", str(self.deck()), "--set", "training.stepz=3"])
        self.assert_refused(run, 2, "stepz", "steps")

    def test_a_run_that_is_over_says_so(self):
        changes = merged({"output.checkpoint_every": 1}, {})
        first = self.train(1, changes)
        again = self.train(1, changes, ["--resume", "auto"], directory=first.directory)
        self.assertEqual(again.code, 0, again.output)
        self.assertIn("nothing is left to train", again.output)


if __name__ == "__main__":
    unittest.main()
