"""Token files with the tokenizers that show them: llm.c's file, or none."""
import struct
import unittest

from support import ApplicationTest, merged

WORDS = ["<|end|>", "The", " quick", " fox", " jumps", " over", " dog", ".", "\n", "?"]


def integers(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


class Tokenizers(ApplicationTest):
    def setUp(self):
        super().setUp()
        self.tokenizer = str(self.folder / "words_tokenizer.bin")
        strings = b"".join(bytes([len(word)]) + word.encode() for word in WORDS)
        (self.folder / "words_tokenizer.bin").write_bytes(integers(20240328, 2, len(WORDS), 0).ljust(1024, b"\0") + strings)
        tokens = [1, 2, 3, 4, 5, 6, 7, 8, 0] * 60
        header = integers(20240520, 1, len(tokens)).ljust(1024, b"\0")
        (self.folder / "words.bin").write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))
        files = [str(self.folder / "words.bin")]
        self.changes = {"data": {"train": files, "validation": files, "tokenizer": self.tokenizer},
                        "training.steps": 30, "output": {"checkpoint_every": 30, "sample": {"tokens": 8, "prompt": "<1>",
                                                                                         "temperature": 0}}}

    def effective(self, run):
        return (run.directory / "deck.yaml").read_text()

    def test_a_run_takes_its_vocabulary_from_the_tokenizer_and_shows_words(self):
        run = self.train(2, merged(self.changes, {"parallel.pipeline": 2}))
        self.assert_finished(run)
        self.assertIn(f"vocabulary: {len(WORDS)}\n", self.effective(run))
        sample = run.summary()["sample"]
        self.assertEqual(sample["prompt"], "The")
        self.assertTrue(any(word in sample["text"] for word in WORDS[2:]), sample)

        checkpoint = str(run.checkpoints()[-1])
        shown = self.penstock(["generate", checkpoint, "--prompt", "<1>", "--tokens", "8", "--temperature", "0"])
        self.assertEqual((shown.returncode, shown.stdout), (0, sample["prompt"] + sample["text"] + "\n"))
        numbers = self.penstock(["generate", checkpoint, "--prompt", "<1>", "--tokens", "2", "--set",
                                 "data.tokenizer=none"])
        self.assertRegex(numbers.stdout, r"^(<\d>){3}\n$")
        self.assertEqual(self.penstock(["generate", checkpoint, "--prompt", "The"]).returncode, 2)

    def test_a_prompt_that_cannot_be_read_is_refused_before_the_training(self):
        run = self.train(1, merged(self.changes, {"output.sample.prompt": "The "}))
        self.assertEqual(run.code, 2, run.output)
        self.assertIn("output.sample.prompt `The `", run.output)
        self.assertFalse((run.directory / "metrics.csv").exists())

    def test_no_tokenizer(self):
        run = self.train(1, merged(self.changes, {"data.tokenizer": "none"}))
        self.assertEqual(run.code, 2, run.output)
        self.assertIn("model.vocabulary", run.output)
        run = self.train(1, merged(self.changes, {"data.tokenizer": "none", "model.vocabulary": 10}))
        self.assert_finished(run)
        self.assertRegex(run.summary()["sample"]["text"], r"^(<\d>){8}$")

    def test_text_needs_the_byte_tokenizer(self):
        run = self.train(1, merged(self.changes, {"data.train": [str(self.folder / "text.txt")]}))
        self.assertEqual(run.code, 2, run.output)
        self.assertIn("text.txt is text", run.output)

    def test_files_that_are_no_tokenizers(self):
        for name, code, word in ((str(self.folder / "gone.bin"), 2, "no such file"),
                                 (str(self.folder / "words.bin"), 4, "no llm.c tokenizer"), ("byts", 2, "bytes")):
            with self.subTest(name=name):
                run = self.train(1, merged(self.changes, {"data.tokenizer": name}))
                self.assertEqual(run.code, code, run.output)
                self.assertIn(word, run.output)


if __name__ == "__main__":
    unittest.main()
