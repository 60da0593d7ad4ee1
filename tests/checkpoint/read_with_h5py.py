# SPDX-License-Identifier: Apache-2.0
"""Reads the checkpoint that the test CheckpointFile.IsReadByH5py wrote, and checks what it holds."""
import sys

import h5py
import numpy


def example_value(step, dataset, count):
    """The formula of tests/checkpoint/example.hpp."""
    element = numpy.arange(count, dtype=numpy.int64)
    mixed = (element * 7919 + dataset * 104729 + step * 1299709) % 16777213
    return mixed.astype(numpy.float32) / numpy.float32(1024) - numpy.float32(8000)


with h5py.File(sys.argv[1], "r") as file:
    assert file.attrs["step"] == 3
    assert file.attrs["seed"] == 0xFEDCBA9876543210
    assert file.attrs["deck"].decode() == "model:\n  layers: 8\n", file.attrs["deck"]
    names = ["parameters/norm/weight", "parameters/layers/0/query/weight", "optimizer/first_moment/norm/weight"]
    shapes = [(70,), (30, 50), (70,)]
    for index, (name, shape) in enumerate(zip(names, shapes)):
        data = file[name]
        assert data.shape == shape and data.dtype == numpy.float32, (name, data.shape, data.dtype)
        assert numpy.array_equal(data[...].ravel(), example_value(3, index, data.size)), name
        assert file["checksums/" + name].shape == (1,)
