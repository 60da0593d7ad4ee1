// SPDX-License-Identifier: Apache-2.0
#include "trace/hdf5.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fstream>

#include "base/host_block.hpp"
#include "base/log.hpp"
#include "trace/failed_close.hpp"

namespace penstock::hdf5 {
namespace {

/// Text attributes above this cannot come from Penstock: a damaged size must not become an allocation.
constexpr std::size_t largest_text = std::size_t{64} << 20U;

std::atomic<bool> failed_to_close{false};

/// Keeps HDF5 from printing its error stack: the Error carries it.
void silence_once() {
  static const herr_t done = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  static_cast<void>(done);
}

/// HDF5 may crash where the system refuses it memory: as much as a file takes is asked for, and given back, before.
void require_memory(const Doing& doing) {
  constexpr Bytes room{std::int64_t{64} << 20};
  const HostBlock probe{room, fmt::format("HDF5 ({})", doing.what),
                        "give each process more (ulimit -v, the limits of the batch system), or use more nodes"};
}

herr_t keep_innermost(unsigned depth, const H5E_error2_t* entry, void* target) {
  static_cast<void>(depth);
  auto& text = *static_cast<std::string*>(target);
  if (text.empty() && entry->desc != nullptr) text = entry->desc;
  return 0;
}

/// Opens an attribute, and refuses one that is no scalar or of another class (integer, float, string).
Attribute open_scalar(hid_t object, const char* name, H5T_class_t wanted, const Doing& doing) {
  if (checked(H5Aexists(object, name), doing) == 0)
    fail(doing.code, "{}: the attribute '{}' is missing", doing.what, name);
  Attribute attribute{checked(H5Aopen(object, name, H5P_DEFAULT), doing)};
  const Space space{checked(H5Aget_space(attribute.get()), doing)};
  const Type type{checked(H5Aget_type(attribute.get()), doing)};
  const bool scalar = checked(H5Sget_simple_extent_npoints(space.get()), doing) == 1;
  if (!scalar || H5Tget_class(type.get()) != wanted)
    fail(doing.code, "{}: the attribute '{}' has an unexpected type", doing.what, name);
  return attribute;
}

void write_scalar(hid_t object, const char* name, hid_t type, const void* value, const Doing& doing) {
  const Space space{checked(H5Screate(H5S_SCALAR), doing)};
  const Attribute attribute{checked(H5Acreate2(object, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), doing)};
  checked(H5Awrite(attribute.get(), type, value), doing);
}

template <class T>
T read_scalar(hid_t object, const char* name, H5T_class_t wanted, hid_t type, const Doing& doing) {
  T value{};
  checked(H5Aread(open_scalar(object, name, wanted, doing).get(), type, &value), doing);
  return value;
}

[[noreturn]] void fail_as_other_kind(const std::string& path, const FileKind& kind, std::string_view found,
                                     const Doing& doing) {
  fail(doing.code, "{} is not {} of Penstock ({}); expected {}", path, kind.name, found, kind.found_in);
}

Type text_type(std::size_t bytes, const Doing& doing) {
  Type type{checked(H5Tcopy(H5T_C_S1), doing)};
  checked(H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1)), doing);
  checked(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), doing);
  checked(H5Tset_cset(type.get(), H5T_CSET_UTF8), doing);
  return type;
}

}  // namespace

void report_failed_close(const char* kind) noexcept {
  failed_to_close = true;
  try {
    std::string cause;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &cause);
    log::warning("HDF5 could not close a {}: {}", kind, cause);
  } catch (...) {  // a warning that cannot be written is lost: there is nobody to tell
    return;
  }
}

bool has_failed_to_close() noexcept {
  return failed_to_close;
}

void fail_with_error_stack(const Doing& doing) {
  std::string cause;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &cause);
  H5Eclear2(H5E_DEFAULT);
  fail(doing.code, "{}: HDF5 says: {}", doing.what, cause.empty() ? "no further detail" : cause);
}

PropertyList file_access(H5F_libver_t format, const Doing& doing) {
  silence_once();
  PropertyList access{checked(H5Pcreate(H5P_FILE_ACCESS), doing)};
  checked(H5Pset_libver_bounds(access.get(), format, format), doing);
  checked(H5Pset_fclose_degree(access.get(), H5F_CLOSE_SEMI), doing);  // an object left open is a fault: say so
  return access;
}

File create_file(const std::string& path, const PropertyList& access, const Doing& doing) {
  silence_once();
  require_memory(doing);
  return File{checked(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), doing)};
}

void close_file(File file, const Doing& doing) {
  const herr_t status = H5Fclose(file.release());
  if (status < 0) failed_to_close = true;
  checked(status, doing);
}

File open_file(const std::string& path, const FileKind& kind, const Doing& doing) {
  silence_once();
  if (!std::ifstream{path}) throw Error{doing.code, system_error_text(doing.what, errno)};
  if (H5Fis_hdf5(path.c_str()) <= 0) fail_as_other_kind(path, kind, "not an HDF5 file", doing);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (id < 0) fail(doing.code, "{}: the file is damaged or was cut short", doing.what);
  File file{id};
  if (checked(H5Lexists(id, kind.part, H5P_DEFAULT), doing) == 0)
    fail_as_other_kind(path, kind, fmt::format("without /{}", kind.part), doing);
  return file;
}

void write_attribute(hid_t object, const char* name, std::string_view text, const Doing& doing) {
  const std::string bytes = text.empty() ? std::string(1, '\0') : std::string{text};
  write_scalar(object, name, text_type(bytes.size(), doing).get(), bytes.data(), doing);
}

void write_attribute(hid_t object, const char* name, std::int64_t value, const Doing& doing) {
  write_scalar(object, name, H5T_STD_I64LE, &value, doing);
}

void write_attribute(hid_t object, const char* name, std::uint64_t value, const Doing& doing) {
  write_scalar(object, name, H5T_STD_U64LE, &value, doing);
}

void write_attribute(hid_t object, const char* name, double value, const Doing& doing) {
  write_scalar(object, name, H5T_IEEE_F64LE, &value, doing);
}

std::string read_text_attribute(hid_t object, const char* name, const Doing& doing) {
  const Attribute attribute = open_scalar(object, name, H5T_STRING, doing);
  const Type type{checked(H5Aget_type(attribute.get()), doing)};
  const std::size_t bytes = H5Tget_size(type.get());
  if (bytes > largest_text || checked(H5Tis_variable_str(type.get()), doing) > 0)
    fail(doing.code, "{}: the attribute '{}' is not a text of fixed length", doing.what, name);
  std::string text(bytes, '\0');
  checked(H5Aread(attribute.get(), text_type(bytes, doing).get(), text.data()), doing);
  text.erase(std::find(text.begin(), text.end(), '\0'), text.end());
  return text;
}

std::int64_t read_signed_attribute(hid_t object, const char* name, const Doing& doing) {
  return read_scalar<std::int64_t>(object, name, H5T_INTEGER, H5T_NATIVE_INT64, doing);
}

std::uint64_t read_unsigned_attribute(hid_t object, const char* name, const Doing& doing) {
  return read_scalar<std::uint64_t>(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, doing);
}

double read_real_attribute(hid_t object, const char* name, const Doing& doing) {
  return read_scalar<double>(object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, doing);
}

}  // namespace penstock::hdf5
