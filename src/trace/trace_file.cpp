// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "trace/hdf5.hpp"

namespace penstock {
namespace {

using hdf5::checked;
using hdf5::Doing;

constexpr std::int64_t format_version = 1;
constexpr hsize_t rows_per_chunk = 4096;

/// A row of /spans in memory; the file holds the same members packed.
struct SpanRow {
  std::int32_t step, rank;
  std::uint8_t lane, op, part;
  std::int32_t peer, stage, micro_batch, slice;
  double start, end;
  std::int64_t bytes;
  double waited;
};

struct MemoryRow {
  std::int32_t step, rank;
  double time;
  std::int64_t in_use;
};
static_assert(std::is_standard_layout_v<SpanRow> && std::is_standard_layout_v<MemoryRow>);

SpanRow row_of(const Span& span) {
  return {span.step,
          span.rank,
          static_cast<std::uint8_t>(span.lane),
          static_cast<std::uint8_t>(span.action.op),
          span.action.part,
          span.peer,
          span.action.stage.value(),
          span.action.micro_batch.value(),
          span.action.slice.value(),
          span.start.value,
          span.end.value,
          span.bytes.value,
          span.waited.value};
}

Span span_of(const SpanRow& row) {
  return {row.step,
          row.rank,
          static_cast<Lane>(row.lane),
          row.peer,
          {static_cast<Op>(row.op), Stage{row.stage}, MicroBatch{row.micro_batch}, Slice{row.slice}, row.part},
          {row.start},
          {row.end},
          {row.bytes},
          {row.waited}};
}

MemoryRow row_of(const MemorySample& sample) {
  return {sample.step, sample.rank, sample.time.value, sample.in_use.value};
}

MemorySample sample_of(const MemoryRow& row) {
  return {row.step, row.rank, {row.time}, {row.in_use}};
}

/// An enumeration with the names of ops or lanes: the file explains itself, and is read by name whatever the numbers
/// were.
template <class Enumerator>
hdf5::Type enumeration(int count, const Doing& doing) {
  hdf5::Type type{checked(H5Tenum_create(H5T_NATIVE_UINT8), doing)};
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<std::uint8_t>(i);
    checked(H5Tenum_insert(type.get(), std::string{name_of(static_cast<Enumerator>(value))}.c_str(), &value), doing);
  }
  return type;
}

struct Member {
  const char* name;
  std::size_t offset;
  hid_t type;
};

hdf5::Type compound(std::size_t size, const std::vector<Member>& members, const Doing& doing) {
  hdf5::Type type{checked(H5Tcreate(H5T_COMPOUND, size), doing)};
  for (const auto& member : members) checked(H5Tinsert(type.get(), member.name, member.offset, member.type), doing);
  return type;
}

hdf5::Type span_type(const Doing& doing) {
  const auto lanes = enumeration<Lane>(lane_count, doing);
  const auto ops = enumeration<Op>(op_count, doing);
  return compound(sizeof(SpanRow),
                  {{"step", offsetof(SpanRow, step), H5T_NATIVE_INT32},
                   {"rank", offsetof(SpanRow, rank), H5T_NATIVE_INT32},
                   {"lane", offsetof(SpanRow, lane), lanes.get()},
                   {"op", offsetof(SpanRow, op), ops.get()},
                   {"part", offsetof(SpanRow, part), H5T_NATIVE_UINT8},
                   {"peer", offsetof(SpanRow, peer), H5T_NATIVE_INT32},
                   {"stage", offsetof(SpanRow, stage), H5T_NATIVE_INT32},
                   {"micro_batch", offsetof(SpanRow, micro_batch), H5T_NATIVE_INT32},
                   {"slice", offsetof(SpanRow, slice), H5T_NATIVE_INT32},
                   {"start", offsetof(SpanRow, start), H5T_NATIVE_DOUBLE},
                   {"end", offsetof(SpanRow, end), H5T_NATIVE_DOUBLE},
                   {"bytes", offsetof(SpanRow, bytes), H5T_NATIVE_INT64},
                   {"waited", offsetof(SpanRow, waited), H5T_NATIVE_DOUBLE}},
                  doing);
}

hdf5::Type memory_type(const Doing& doing) {
  return compound(sizeof(MemoryRow),
                  {{"step", offsetof(MemoryRow, step), H5T_NATIVE_INT32},
                   {"rank", offsetof(MemoryRow, rank), H5T_NATIVE_INT32},
                   {"time", offsetof(MemoryRow, time), H5T_NATIVE_DOUBLE},
                   {"in_use", offsetof(MemoryRow, in_use), H5T_NATIVE_INT64}},
                  doing);
}

/// Chunks with Fletcher-32 checksums (the reader notices flipped bits) and deflate; an empty table has none.
hdf5::PropertyList table_creation(hsize_t rows, const Doing& doing) {
  hdf5::PropertyList creation{checked(H5Pcreate(H5P_DATASET_CREATE), doing)};
  if (rows == 0) return creation;
  const hsize_t rows_of_chunk = std::min(rows, rows_per_chunk);
  checked(H5Pset_chunk(creation.get(), 1, &rows_of_chunk), doing);
  checked(H5Pset_shuffle(creation.get()), doing);
  checked(H5Pset_deflate(creation.get(), 1), doing);
  checked(H5Pset_fletcher32(creation.get()), doing);
  return creation;
}

void write_table(hid_t file, const char* name, const hdf5::Type& memory, const void* rows, hsize_t count,
                 const Doing& doing) {
  const hdf5::Type packed{checked(H5Tcopy(memory.get()), doing)};
  checked(H5Tpack(packed.get()), doing);
  const hdf5::Space space{checked(H5Screate_simple(1, &count, nullptr), doing)};
  const auto creation = table_creation(count, doing);
  const hdf5::Dataset table{
      checked(H5Dcreate2(file, name, packed.get(), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), doing)};
  if (count > 0) checked(H5Dwrite(table.get(), memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows), doing);
}

/// No table of a real run comes near this; a damaged count must not become an allocation.
constexpr hssize_t most_rows = hssize_t{1} << 32U;

template <class Row>
std::vector<Row> read_table(hid_t file, const char* name, const hdf5::Type& memory, const Doing& doing) {
  const hdf5::Dataset table{checked(H5Dopen2(file, name, H5P_DEFAULT), doing)};
  const hdf5::Space space{checked(H5Dget_space(table.get()), doing)};
  const auto count = checked(H5Sget_simple_extent_npoints(space.get()), doing);
  if (count > most_rows) fail(doing.code, "{}: /{} claims {} rows", doing.what, name, count);
  std::vector<Row> rows(static_cast<std::size_t>(count));
  if (count > 0) checked(H5Dread(table.get(), memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()), doing);
  return rows;
}

template <class Row, class Item>
std::vector<Row> rows_of(const std::vector<Item>& items) {
  std::vector<Row> rows;
  rows.reserve(items.size());
  for (const auto& item : items) rows.push_back(row_of(item));
  return rows;
}

bool is_sound(const SpanRow& row, std::int32_t ranks) {
  return row.rank >= 0 && row.rank < ranks && row.lane < lane_count && row.op < op_count && std::isfinite(row.start) &&
         std::isfinite(row.end) && row.start <= row.end && row.bytes >= 0 && std::isfinite(row.waited) &&
         row.waited >= 0;
}

bool is_sound(const MemoryRow& row, std::int32_t ranks) {
  return row.rank >= 0 && row.rank < ranks && std::isfinite(row.time) && row.in_use >= 0;
}

template <class Row>
void check_rows(const std::vector<Row>& rows, const char* table, std::int32_t ranks, const Doing& doing) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_sound(rows[i], ranks)) fail(doing.code, "{}: row {} of /{} has impossible values", doing.what, i, table);
  }
}

void write_file(const std::string& path, const Timeline& timeline, const Doing& doing) {
  const auto file = hdf5::create_file(path, hdf5::file_access(H5F_LIBVER_V110, doing), doing);
  hdf5::write_attribute(file.get(), "version", format_version, doing);
  hdf5::write_attribute(file.get(), "schedule", timeline.schedule, doing);
  hdf5::write_attribute(file.get(), "ranks", std::int64_t{timeline.ranks}, doing);
  const auto spans = rows_of<SpanRow>(timeline.spans);
  write_table(file.get(), "spans", span_type(doing), spans.data(), spans.size(), doing);
  const auto samples = rows_of<MemoryRow>(timeline.memory);
  write_table(file.get(), "memory", memory_type(doing), samples.data(), samples.size(), doing);
  checked(H5Fflush(file.get(), H5F_SCOPE_LOCAL), doing);
}

void read_attributes(hid_t file, Timeline& timeline, const Doing& doing) {
  const auto version = hdf5::read_signed_attribute(file, "version", doing);
  if (version != format_version)
    fail(doing.code, "{}: format version {}; this program reads version {}", doing.what, version, format_version);
  timeline.schedule = hdf5::read_text_attribute(file, "schedule", doing);
  const auto ranks = hdf5::read_signed_attribute(file, "ranks", doing);
  if (ranks < 1 || ranks > INT32_MAX) fail(doing.code, "{}: {} ranks", doing.what, ranks);
  timeline.ranks = static_cast<std::int32_t>(ranks);
}

/// Where the file will stand: behind links. What is no file (a device, a pipe, a folder) is not replaced by one.
std::string place_of(const std::string& path) {
  std::error_code error;
  const auto place = std::filesystem::weakly_canonical(path, error);
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ExitCode::cannot_write, "writing the trace {}: there is something that is no file; name a file, or a new one",
         path);
  }
  return place.empty() ? path : place.string();
}

}  // namespace

void write_trace(const std::string& path, const Timeline& timeline) {
  const std::string place = place_of(path);
  const std::string beside = place + ".partial";
  if (!std::ofstream{beside, std::ios::binary})
    throw Error{ExitCode::cannot_write, system_error_text("writing the trace " + path, errno)};
  try {
    write_file(beside, timeline, {ExitCode::cannot_write, "writing the trace " + path});
    std::filesystem::rename(beside, place);
  } catch (const std::filesystem::filesystem_error& error) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    fail(ExitCode::cannot_write, "writing the trace {}: {}", path, error.code().message());
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
}

Timeline read_trace(const std::string& path) {
  const Doing doing{ExitCode::damaged_input, "reading the trace " + path};
  const auto file = hdf5::open_file(path, {"a trace", "trace.h5 of a run's folder", "spans"}, doing);
  Timeline timeline;
  read_attributes(file.get(), timeline, doing);
  const auto spans = read_table<SpanRow>(file.get(), "spans", span_type(doing), doing);
  const auto samples = read_table<MemoryRow>(file.get(), "memory", memory_type(doing), doing);
  check_rows(spans, "spans", timeline.ranks, doing);
  check_rows(samples, "memory", timeline.ranks, doing);
  for (const auto& row : spans) timeline.spans.push_back(span_of(row));
  for (const auto& row : samples) timeline.memory.push_back(sample_of(row));
  return timeline;
}

}  // namespace penstock
