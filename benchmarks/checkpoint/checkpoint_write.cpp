// SPDX-License-Identifier: Apache-2.0
//
// The rate of writing a checkpoint against a plain sequential write of as many bytes with fdatasync, in the same run.
// Usage: mpirun -n RANKS benchmark_checkpoint_write [FOLDER [MEGABYTES [REPETITIONS]]]
// The two alternate; each figure is the best of the repetitions. What is written is removed at the end.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"

namespace penstock {
namespace {

constexpr std::int64_t hidden = 768;

struct Arguments {
  std::string folder = "benchmark_checkpoint";
  std::int64_t megabytes = 2000;
  int repetitions = 3;
};

/// Matrices and vectors as GPT-2 124M has them, a third of the bytes in each of parameters and both moments.
CheckpointContents contents_of(std::int64_t megabytes) {
  CheckpointContents contents;
  contents.header.step = 1;
  for (const char* prefix : {"parameters", "optimizer/first_moment", "optimizer/second_moment"}) {
    std::int64_t left = megabytes * 1000000 / 4 / 3;
    for (int layer = 0; left > 0; ++layer) {
      const std::int64_t rows = std::min<std::int64_t>(layer == 0 ? 50257 : 4 * hidden, divide_up(left, hidden));
      contents.datasets.push_back({fmt::format("{}/layers/{}/weight", prefix, layer), rows, hidden, false});
      contents.datasets.push_back({fmt::format("{}/layers/{}/bias", prefix, layer), 1, hidden, true});
      left -= rows * hidden;
    }
  }
  return contents;
}

struct State {
  std::vector<float> values;
  std::vector<SavedPiece> pieces;
};

/// Whole data sets, dealt so that each rank has about as many bytes.
State state_of_rank(const CheckpointContents& contents, int rank, int ranks) {
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  State state;
  std::vector<std::int32_t> mine;
  std::int64_t elements = 0;
  for (std::size_t set = 0; set < contents.datasets.size(); ++set) {
    const auto least = std::min_element(load.begin(), load.end());
    const std::int64_t size = contents.datasets[set].size();
    if (least - load.begin() == rank) {
      mine.push_back(static_cast<std::int32_t>(set));
      elements += size;
    }
    *least += size;
  }
  state.values.resize(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < state.values.size(); ++i)
    state.values[i] = static_cast<float>(i % 1000003) * 0.37F + 1.0F;
  const float* next = state.values.data();
  for (const auto set : mine) {
    const std::int64_t size = contents.datasets[static_cast<std::size_t>(set)].size();
    state.pieces.push_back({set, 0, size, next});
    next += size;
  }
  return state;
}

/// Processor time of this process: tells the work from the waiting where the machine is shared.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double sum_over_ranks(const Communicator& group, double value) {
  double sum = 0;
  for (const double of_rank : group.all_gather(value)) sum += of_rank;
  return sum;
}

/// Writes `bytes` in blocks of 4 MiB, then fdatasync.
Seconds write_plainly(const std::string& path, std::int64_t bytes) {
  const std::vector<char> block(4U << 20U, 'x');
  const Seconds begin = now();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (std::int64_t left = bytes; left > 0;) {
    const auto count = write(file, block.data(), static_cast<std::size_t>(std::min<std::int64_t>(left, 4 << 20)));
    if (count <= 0) throw Error{ExitCode::bad_input, system_error_text("writing " + path, errno)};
    left -= count;
  }
  if (fdatasync(file) != 0) throw Error{ExitCode::bad_input, system_error_text("writing " + path, errno)};
  close(file);
  const Seconds time = now() - begin;
  std::filesystem::remove(path);
  return time;
}

void measure(const Communicator& group, const Arguments& arguments) {
  const auto contents = contents_of(arguments.megabytes);
  const auto state = state_of_rank(contents, group.rank(), group.size());
  if (group.rank() == 0) std::filesystem::create_directories(arguments.folder);
  double plain = std::numeric_limits<double>::infinity();
  double checkpoint = plain;
  double load = plain;
  CheckpointReport report;
  for (int i = 0; i < arguments.repetitions; ++i) {
    group.barrier();
    double plain_now = 0;
    double processor_plain = processor_seconds();
    if (group.rank() == 0) {
      std::int64_t bytes = 0;
      for (const auto& set : contents.datasets) bytes += 4 * set.size();
      plain_now = write_plainly(arguments.folder + "/plain", bytes).value;
      plain = std::min(plain, plain_now);
    }
    processor_plain = sum_over_ranks(group, processor_seconds() - processor_plain);
    double processor = processor_seconds();
    report = write_checkpoint(group, {arguments.folder, 1}, contents, state.pieces);
    checkpoint = std::min(checkpoint, report.seconds.value);
    processor = sum_over_ranks(group, processor_seconds() - processor);
    log::note("  plain {:.2f} s ({:.2f} s of processors), checkpoint {:.2f} s ({:.2f} s)", plain_now, processor_plain,
              report.seconds.value, processor);
  }
  if (group.rank() == 0) {
    const Seconds begin = now();
    verify_checkpoint(report.path);
    load = (now() - begin).value;
    std::filesystem::remove_all(arguments.folder);
  }
  const double megabytes = static_cast<double>(report.bytes.value) / 1e6;
  log::note(
      "{:.0f} MB on {} ranks, {} data sets: plain {:.0f} MB/s, checkpoint {:.0f} MB/s ({:.0f} %), verifying {:.0f} "
      "MB/s",
      megabytes, group.size(), contents.datasets.size(), megabytes / plain, megabytes / checkpoint,
      100 * plain / checkpoint, megabytes / load);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const penstock::MpiEnvironment environment{&argc, &argv};
  penstock::Arguments arguments;
  if (argc > 1) arguments.folder = argv[1];
  if (argc > 2) arguments.megabytes = std::max(1L, std::strtol(argv[2], nullptr, 10));
  if (argc > 3) arguments.repetitions = static_cast<int>(std::max(1L, std::strtol(argv[3], nullptr, 10)));
  try {
    penstock::measure(penstock::Communicator::world().duplicate(), arguments);
    return 0;
  } catch (const std::exception& error) {
    penstock::log::error(error.what());
    penstock::MpiEnvironment::abort(penstock::ExitCode::internal);
  }
}
