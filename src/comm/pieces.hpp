// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

namespace penstock {

/// Cuts `bytes` into pieces of at most `largest` and calls piece(offset, size) for each; once with (0, 0) for nothing
/// at all. MPI counts in 32 bits: `largest` is at most 1 GiB.
template <class Size, class Function>
void for_each_piece(Size bytes, Size largest, Function piece) {
  Size offset = 0;
  do {
    const Size size = std::min(bytes - offset, largest);
    piece(offset, static_cast<int>(size));
    offset += size;
  } while (offset < bytes);
}

}  // namespace penstock
