"""Text from a checkpoint: the same on every layout, and clear refusals."""
import re
import unittest

from support import ApplicationTest, merged


class Generate(ApplicationTest):
    def checkpoint(self, changes=None):
        run = self.train(1, merged({"output.checkpoint_every": 3}, changes or {}))
        self.assert_finished(run)
        return str(run.checkpoints()[-1])

    def generate(self, ranks, *arguments):
        return self.penstock(["generate", *arguments], ranks)

    def test_layouts_write_the_same_text(self):
        checkpoint = self.checkpoint()
        texts = []
        for ranks in (0, 1, 3):
            done = self.generate(ranks, checkpoint, "--tokens", "30", "--prompt", "The quick")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertTrue(done.stdout.startswith("The quick"), done.stdout)
            texts.append(done.stdout)
        self.assertEqual(len(set(texts)), 1)

    def test_layouts_write_the_same_text_in_the_slices_of_the_run(self):
        checkpoint = self.checkpoint({"schedule": {"kind": "seq1f1b", "slices": 5}})
        texts = []
        for ranks in (1, 3):
            done = self.generate(ranks, checkpoint, "--tokens", "30", "--prompt", "The quick")
            self.assertEqual(done.returncode, 0, done.stdout)
            texts.append(done.stdout)
        self.assertEqual(*texts)

    def test_a_mode_of_recomputation_for_each_stage_of_the_run_is_no_matter(self):
        checkpoint = self.checkpoint({"schedule": {"kind": "gpipe", "virtual": 2},
                                      "memory.recompute_by_stage": ["full", "none"]})
        done = self.generate(2, checkpoint, "--tokens", "2")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_text_needs_no_memory_of_training(self):
        trained = self.train(1, {"output.checkpoint_every": 3})
        self.assert_finished(trained)
        checkpoint = str(trained.checkpoints()[-1])
        refused = self.generate(1, checkpoint, "--tokens", "2", "--set", "memory.device=1KiB")
        self.assertEqual(refused.returncode, 3, refused.stdout)
        needed = int(re.search(r"It would fit in (\d+) bytes", refused.stdout)[1])
        self.assertNotIn("gradients", refused.stdout)

        gradients = 4 * int(re.search(r"model: (\d+) parameters", trained.output)[1])
        self.assertLess(needed + gradients, trained.summary()["ranks"][0]["planned_device_bytes"])
        for memory, code in ((needed, 0), (needed - 1, 3)):
            done = self.generate(1, checkpoint, "--tokens", "2", "--set", f"memory.device={memory}")
            self.assertEqual(done.returncode, code, done.stdout)

    def test_the_layout_is_that_of_the_ranks_started(self):
        done = self.generate(1, self.checkpoint(), "--tokens", "2", "--set", "parallel.pipeline=2")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_bad_options_are_refused(self):
        checkpoint = self.checkpoint()
        for arguments in (["--temperature", "nan"], ["--temperature", "inf"], ["--temperature", "-1"], ["--tokens", "0"],
                          ["--prompt", ""]):
            with self.subTest(arguments=arguments):
                done = self.generate(0, checkpoint, *arguments)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(arguments[0], done.stdout)

    def test_another_model_than_the_checkpoints_is_refused(self):
        checkpoint = self.checkpoint()
        for key, value in (("layers", 3), ("hidden", 32), ("heads", 2), ("tie_embeddings", "true")):
            with self.subTest(key=key):
                done = self.generate(0, checkpoint, "--set", f"model.{key}={value}", "--tokens", "2")
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(f"model.{key} is {value}", done.stdout)

    def test_more_ranks_than_layers(self):
        done = self.generate(6, self.checkpoint())
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("at most 5 ranks", done.stdout)

    def test_what_is_no_checkpoint(self):
        text = self.folder / "text.txt"
        done = self.generate(0, str(text))
        self.assertEqual((done.returncode, done.stdout),
                         (4, f"error: {text} is not a checkpoint of Penstock (not an HDF5 file); expected "
                             "checkpoints/step_*.h5 of a run's folder\n"))


if __name__ == "__main__":
    unittest.main()
