"""What README and the pages of doc/ name exists: files, commands, keys, the checkpoint of the quick start."""
import importlib.util
import json
import re
import unittest

import yaml

from support import PENSTOCK, ROOT, ApplicationTest

specification = importlib.util.spec_from_file_location("larger", ROOT / "scripts/larger_than_the_devices.py")
larger = importlib.util.module_from_spec(specification)
specification.loader.exec_module(larger)

# A path from the root of the repository, not a part of a longer one.
PATH = re.compile(r"(?<![\w/.])((?:\.ci|benchmarks|doc|input|jobs|scripts|src|tests)/[\w./-]*\w)")
COMMAND = re.compile(r"build/penstock ([a-z]+)")
CHECKPOINT = re.compile(r"runs/quickstart/checkpoints/step_(\d+)\.h5")
# A key in a sentence: `group.key` of a group that decks have.
KEY = re.compile(r"`((?:model|data|training|parallel|schedule|memory|device|output|testing)\.[a-z_.]+)(?::[^`]*)?`")

# Keys of hardware files that none of input/hardware has need of.
LEFT_OUT = {"device.reserve"}


class Documents(ApplicationTest):
    def pages(self):
        pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "doc").rglob("*.md"))]
        self.assertGreater(len(pages), 10)
        return pages

    def mentions(self, pattern):
        """What the pages mention, with the page."""
        found = [(page.name, text) for page in self.pages() for text in pattern.findall(page.read_text(encoding="utf-8"))]
        self.assertTrue(found)
        return found

    def test_files_exist(self):
        self.assertEqual([(page, path) for page, path in self.mentions(PATH) if not (ROOT / path).exists()], [])

    def test_commands_exist(self):
        help_text = self.penstock(["--help"]).stdout
        commands = set(re.findall(r"^  ([a-z]+)", help_text, re.MULTILINE))
        self.assertEqual([(page, name) for page, name in self.mentions(COMMAND) if name not in commands], [])

    def known_keys(self):
        """Those of decks with the groups that hold them, and those of hardware files, whose sections have the same names."""
        known = set(LEFT_OUT)
        for file in (ROOT / "input/hardware").glob("*.yaml"):
            sections = yaml.safe_load(file.read_text(encoding="utf-8")).items()
            known.update(f"{section}.{key}" for section, keys in sections if isinstance(keys, dict) for key in keys)
        section = ""
        for line in self.penstock(["help", "deck", "--markdown"]).stdout.splitlines():
            if line.startswith("## "):
                section = line[3:]
            elif line.startswith("| `"):
                parts = f"{section}.{line.split('`')[1]}".split(".")
                known.update(".".join(parts[:count]) for count in range(2, len(parts) + 1))
        return known

    def test_keys_exist(self):
        known = self.known_keys()
        self.assertEqual([(page, key) for page, key in self.mentions(KEY) if key not in known], [])

    def test_the_page_on_what_is_larger_than_the_devices_says_what_the_program_does(self):
        parts = larger.sections(PENSTOCK)
        for name, part in parts.items():
            self.assertIn("yes", part, name)
            self.assertIn("–", part, name)
        page = larger.PAGE.read_text(encoding="utf-8")
        self.assertEqual(larger.filled(page, parts), page, "run scripts/larger_than_the_devices.py --write")

    def keys_in(self, value):
        """The names of all keys of a JSON document."""
        if isinstance(value, list):
            return set().union(*map(self.keys_in, value))
        return set(value).union(*map(self.keys_in, value.values())) if isinstance(value, dict) else set()

    def test_every_key_of_the_json_documents_is_explained(self):
        run = self.train(1, {"output.sample": {"prompt": "The", "tokens": 2}})
        check = json.loads(self.penstock(["check", str(run.directory / "deck.yaml"), "--json"]).stdout)
        page = (ROOT / "doc/files.md").read_text(encoding="utf-8")

        keys = self.keys_in(check) | self.keys_in(run.summary()) - set(run.summary()["seconds_over_ranks"])

        self.assertGreater(len(keys), 25)
        self.assertEqual([key for key in sorted(keys) if f"`{key}`" not in page], [])

    def test_the_quick_start_leaves_the_checkpoint_that_is_shown(self):
        steps = yaml.safe_load((ROOT / "input/quickstart.yaml").read_text(encoding="utf-8"))["training"]["steps"]
        self.assertEqual({int(step) for _, step in self.mentions(CHECKPOINT)}, {steps})


if __name__ == "__main__":
    unittest.main()
