// SPDX-License-Identifier: Apache-2.0
//
// Owning handles and checked calls over HDF5, for the .cpp files of the modules that link it (trace, checkpoint, data).
// HDF5 is not thread-safe: all calls of a process run on one thread (checkpoint/io_thread).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <hdf5.h>

#include "base/error.hpp"
#include "base/handle.hpp"

namespace penstock::hdf5 {

/// Logs that an HDF5 close function failed: closing happens in destructors, which do not throw.
void report_failed_close(const char* kind) noexcept;

template <herr_t (*Close)(hid_t), int Kind>
struct Traits {
  using Handle = hid_t;
  static Handle null() noexcept { return H5I_INVALID_HID; }
  static void close(Handle handle) noexcept {
    constexpr const char* kinds[] = {"file", "group", "data set", "space", "type", "attribute", "property list"};
    if (Close(handle) < 0) report_failed_close(kinds[Kind]);
  }
};

using File = UniqueHandle<Traits<H5Fclose, 0>>;
using Group = UniqueHandle<Traits<H5Gclose, 1>>;
using Dataset = UniqueHandle<Traits<H5Dclose, 2>>;
using Space = UniqueHandle<Traits<H5Sclose, 3>>;
using Type = UniqueHandle<Traits<H5Tclose, 4>>;
using Attribute = UniqueHandle<Traits<H5Aclose, 5>>;
using PropertyList = UniqueHandle<Traits<H5Pclose, 6>>;

/// What a failing call becomes: the exit code, and the words before HDF5's own ("reading the trace run/trace.h5").
struct Doing {
  ExitCode code = ExitCode::internal;
  std::string what;
};

/// Throws Error with `doing` and the innermost message of HDF5's error stack, and clears the stack.
[[noreturn]] void fail_with_error_stack(const Doing& doing);

/// The result of an HDF5 call (an id, a status, a count), or an Error if it is negative.
template <class Result>
Result checked(Result result, const Doing& doing) {
  if (result < 0) fail_with_error_stack(doing);
  return result;
}

/// A file access list for a format whose metadata carry checksums, so that damage is noticed, not followed: `format` is
/// H5F_LIBVER_V18 (not the index of chunked data sets) or H5F_LIBVER_V110 (that too; a writer that dies leaves a mark).
PropertyList file_access(H5F_libver_t format, const Doing& doing);

File create_file(const std::string& path, const PropertyList& access, const Doing& doing);

/// Closes a file that was written: what did not reach it is then known. @throws Error with `doing`
void close_file(File file, const Doing& doing);

/// What a file should be: what errors call it, where users find such files, and a group or data set that each one has.
struct FileKind {
  const char* name;      ///< "a checkpoint"
  const char* found_in;  ///< "checkpoints/step_*.h5 of a run's folder"
  const char* part;      ///< "parameters"
};

/// Opens a file read only. @throws Error with `doing.code` that says whether the file cannot be read, is none of this
/// kind, or is damaged.
File open_file(const std::string& path, const FileKind& kind, const Doing& doing);

/// Scalar attributes of a file, group or data set. Text is stored with its length, as UTF-8.
void write_attribute(hid_t object, const char* name, std::string_view text, const Doing& doing);
void write_attribute(hid_t object, const char* name, std::int64_t value, const Doing& doing);
void write_attribute(hid_t object, const char* name, std::uint64_t value, const Doing& doing);
void write_attribute(hid_t object, const char* name, double value, const Doing& doing);
std::string read_text_attribute(hid_t object, const char* name, const Doing& doing);
std::int64_t read_signed_attribute(hid_t object, const char* name, const Doing& doing);
std::uint64_t read_unsigned_attribute(hid_t object, const char* name, const Doing& doing);
double read_real_attribute(hid_t object, const char* name, const Doing& doing);

}  // namespace penstock::hdf5
