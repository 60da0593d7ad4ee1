// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/contents.hpp"
#include "comm/communicator.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::test {

/// One folder for all ranks, made and removed by rank 0.
class SharedFolder {
 public:
  explicit SharedFolder(const Communicator& group) : group_{group} {
    if (group.rank() == 0) mine_ = std::make_unique<TemporaryDirectory>();
    path_ = group.broadcast(mine_ ? mine_->path().string() : std::string{}, 0);
  }
  ~SharedFolder() { group_.barrier(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const Communicator& group_;
  std::unique_ptr<TemporaryDirectory> mine_;
  std::string path_;
};

inline CheckpointHeader example_header(std::int64_t step) {
  return {.step = step,
          .adam_steps = step - 1,
          .tokens = 1000 * step,
          .data_position = 16 * step,
          .seed = 0xFEDCBA9876543210U,
          .data_fingerprint = 0xFFFFFFFFFFFFFFFFU,
          .program_version = "0.1.0",
          .deck = "model:\n  layers: 8\n",
          .model_hash = 0x8000000000000001U,
          .wall_seconds = 0.1};
}

/// Small ones, and ones whose chunks begin and end within rows, with rows shorter and longer than a chunk.
inline CheckpointContents example_contents(std::int64_t step) {
  return {example_header(step),
          {{"parameters/norm/weight", 1, 7, true},
           {"parameters/layers/0/query/weight", 3, 5, false},
           {"optimizer/first_moment/table", 1500, 1001, false},
           {"optimizer/second_moment/wide", 2, 1300000, false},
           {"optimizer/second_moment/long", 1, 2 * chunk_elements + 1, true}}};
}

inline CheckpointContents small_contents(std::int64_t step) {
  return {example_header(step),
          {{"parameters/norm/weight", 1, 70, true},
           {"parameters/layers/0/query/weight", 30, 50, false},
           {"optimizer/first_moment/norm/weight", 1, 70, true}}};
}

/// What element `element` of data set `dataset` holds at a step: differs between neighbours, data sets and steps.
inline float example_value(std::int64_t step, std::int32_t dataset, std::int64_t element) {
  const std::int64_t mixed = (element * 7919 + dataset * 104729 + step * 1299709) % 16777213;
  return static_cast<float>(mixed) / 1024.0F - 8000.0F;
}

/// Pieces with their memory, filled with the example's values (saved) or with a mark (loaded).
template <class Float>
struct Pieces {
  std::vector<std::unique_ptr<float[]>> memory;
  std::vector<DatasetPiece<Float>> pieces;
  float* add(std::int32_t dataset, std::int64_t first, std::int64_t count) {
    memory.push_back(std::make_unique<float[]>(static_cast<std::size_t>(count)));
    pieces.push_back({dataset, first, count, memory.back().get()});
    return memory.back().get();
  }
};

inline void add_example(Pieces<const float>& pieces, std::int64_t step, std::int32_t dataset, std::int64_t first,
                        std::int64_t count) {
  float* data = pieces.add(dataset, first, count);
  for (std::int64_t i = 0; i < count; ++i) data[i] = example_value(step, dataset, first + i);
}

/// How data sets are dealt to ranks.
enum class Deal { whole_data_sets, single_chunks, all_to_the_last, halves };

inline Pieces<const float> deal(const CheckpointContents& contents, Deal how, int rank, int ranks) {
  Pieces<const float> pieces;
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(contents.datasets.size()); ++set) {
    const std::int64_t size = contents.datasets[static_cast<std::size_t>(set)].size();
    const std::int64_t chunks = contents.datasets[static_cast<std::size_t>(set)].chunks();
    std::int64_t chunks_of_piece = chunks;
    if (how == Deal::single_chunks) chunks_of_piece = 1;
    if (how == Deal::halves) chunks_of_piece = (chunks + 1) / 2;
    for (std::int64_t chunk = 0; chunk < chunks; chunk += chunks_of_piece) {
      const std::int64_t owner = how == Deal::all_to_the_last ? ranks - 1 : (set + chunk / chunks_of_piece) % ranks;
      const std::int64_t first = chunk * chunk_elements;
      const std::int64_t count = std::min(size - first, chunks_of_piece * chunk_elements);
      if (owner == rank) add_example(pieces, contents.header.step, set, first, count);
    }
  }
  return pieces;
}

/// Pieces of everything, for one process.
inline Pieces<const float> everything(const CheckpointContents& contents) {
  return deal(contents, Deal::whole_data_sets, 0, 1);
}

/// Number of elements of loaded pieces that do not have the example's value.
inline std::int64_t wrong_elements(const Pieces<float>& loaded, std::int64_t step) {
  std::int64_t wrong = 0;
  for (const auto& piece : loaded.pieces) {
    for (std::int64_t i = 0; i < piece.count; ++i)
      wrong += piece.data[i] != example_value(step, piece.dataset, piece.first + i);
  }
  return wrong;
}

/// All of every data set, to be loaded.
inline Pieces<float> room_for_everything(const std::vector<CheckpointDataset>& datasets) {
  Pieces<float> pieces;
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(datasets.size()); ++set)
    pieces.add(set, 0, datasets[static_cast<std::size_t>(set)].size());
  return pieces;
}

}  // namespace penstock::test
