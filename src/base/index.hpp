// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace penstock {

/// A whole number that names one thing of one kind. Explicit in, explicit out, no arithmetic between kinds.
template <class Tag>
class Index {
 public:
  constexpr Index() = default;
  constexpr explicit Index(std::int32_t value) : value_{value} {}
  constexpr std::int32_t value() const { return value_; }
  constexpr Index next() const { return Index{value_ + 1}; }
  constexpr Index previous() const { return Index{value_ - 1}; }
  friend constexpr auto operator<=>(Index, Index) = default;

 private:
  std::int32_t value_ = 0;
};

using Rank = Index<struct RankTag>;              ///< pipeline coordinate: one device
using Stage = Index<struct StageTag>;            ///< contiguous layers, in one of the two partitions
using MicroBatch = Index<struct MicroBatchTag>;  ///< within the global batch's share of one replica, from 0
using Slice = Index<struct SliceTag>;            ///< a range of tokens of every sequence of a micro-batch
using Layer = Index<struct LayerTag>;            ///< transformer layer of the model, from 0

static_assert(!std::is_convertible_v<Stage, Rank> && !std::is_convertible_v<Stage, int>);

/// The indices 0 .. count-1, for range-based loops: `for (Stage stage : all<Stage>(count))`.
template <class I>
class IndexRange {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(std::int32_t value) : value_{value} {}
    constexpr I operator*() const { return I{value_}; }
    constexpr Iterator& operator++() {
      ++value_;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    std::int32_t value_;
  };
  constexpr explicit IndexRange(std::int32_t count) : count_{count} {}
  constexpr Iterator begin() const { return Iterator{0}; }
  constexpr Iterator end() const { return Iterator{count_}; }

 private:
  std::int32_t count_;
};

template <class I>
constexpr IndexRange<I> all(std::int64_t count) {
  return IndexRange<I>{static_cast<std::int32_t>(count)};
}

/// A vector that takes only its own kind of index.
template <class I, class T>
class Per {
 public:
  Per() = default;
  explicit Per(std::int64_t count, const T& value = T{}) : items_(static_cast<std::size_t>(count), value) {}
  explicit Per(std::vector<T> items) : items_{std::move(items)} {}
  // T& and const T&, but for bool, which std::vector packs into bits.
  typename std::vector<T>::reference operator[](I index) { return items_[static_cast<std::size_t>(index.value())]; }
  typename std::vector<T>::const_reference operator[](I index) const {
    return items_[static_cast<std::size_t>(index.value())];
  }
  std::int32_t size() const { return static_cast<std::int32_t>(items_.size()); }
  bool empty() const { return items_.empty(); }
  bool contains(I index) const { return index.value() >= 0 && index.value() < size(); }
  void push_back(T item) { items_.push_back(std::move(item)); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  friend bool operator==(const Per&, const Per&) = default;

 private:
  std::vector<T> items_;
};

template <class T>
using PerRank = Per<Rank, T>;
template <class T>
using PerStage = Per<Stage, T>;

}  // namespace penstock

template <class Tag>
struct std::hash<penstock::Index<Tag>> {
  std::size_t operator()(penstock::Index<Tag> index) const noexcept { return std::hash<std::int32_t>{}(index.value()); }
};

template <class Tag>
struct fmt::formatter<penstock::Index<Tag>> : fmt::formatter<std::int32_t> {
  template <class Context>
  auto format(penstock::Index<Tag> index, Context& context) const {
    return fmt::formatter<std::int32_t>::format(index.value(), context);
  }
};
