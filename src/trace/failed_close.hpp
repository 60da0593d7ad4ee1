// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace penstock::hdf5 {

/// Whether HDF5 has ever failed to close something in this process. It keeps what it could not close, and may crash
/// when it closes all at its own end.
bool has_failed_to_close() noexcept;

}  // namespace penstock::hdf5
