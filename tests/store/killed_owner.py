#!/usr/bin/python3
"""A job whose owner of parameters is killed ends soon, with an error, and leaves no shared memory behind.

Usage: killed_owner.py MPIRUN PROGRAM
"""
import os
import re
import subprocess
import sys
import unittest

MPIRUN, PROGRAM = sys.argv[1:3]


class KilledOwner(unittest.TestCase):
    def check(self, *arguments):
        before = set(os.listdir("/dev/shm"))
        done = subprocess.run([MPIRUN, "-n", "3", PROGRAM, *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        job = re.search(r"^job ([0-9a-f]+)$", done.stdout, re.M)

        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIsNotNone(job, done.stdout)
        left = set(os.listdir("/dev/shm")) - before
        self.assertEqual([name for name in left if job.group(1) in name or "penstock" in name], [])

    def test_on_one_node(self):
        self.check()

    def test_on_three_nodes(self):
        self.check("1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
