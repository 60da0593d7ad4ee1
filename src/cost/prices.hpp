// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost/hardware.hpp"
#include "cost/links.hpp"
#include "cost/shape.hpp"
#include "schedule/action.hpp"
#include "schedule/buffers.hpp"
#include "schedule/schedule.hpp"
#include "schedule/schedule_index.hpp"

namespace penstock {

/// What every action of a schedule costs on some hardware. Everything is computed once; a price is an array read, and
/// of a message a division.
///
/// Compute: each product takes the longer of its FLOPs at the efficiency of its size and of its bytes at the memory's
/// bandwidth; attention its FLOPs at its own efficiency; elementwise work its bytes. R is the forward of a backward
/// stage, B is I and W. The embedding belongs to the first stage, final norm, head and loss to the last, or to all
/// ranks (vocabulary parallelism: the first and the last stage of each). Parameters belong to the rank of their
/// backward stage: what a forward stage fetches from another node goes over the network. On unit hardware, F, R, I and
/// W are 1 second and B 2 for each smallest common layer block of the two cuttings, everything else 0.
///
/// Parts of a W share its price, launch and elementwise work included, as their matrix products take their time; on
/// unit hardware equally. So together they cost what the whole does.
class CostModel {
 public:
  /// @throws Error bad_input if the shape breaks a rule (see check)
  CostModel(CostShape shape, HardwareOptions hardware);

  /// How long the action takes once it has started. Both ends of a message have the price of its wire.
  /// @pre the stages, slices and ranks are those of the shape
  Seconds price(const Schedule& schedule, const ActionOnRank& node) const;

  /// Bytes of each kind of buffer, by stage (see stage_sizes).
  const PerStage<StageBytes>& bytes() const { return bytes_; }

  /// Matrix products of a backward stage's W, which it can be cut into (see weight_gradient_products).
  std::int32_t weight_products(Stage stage) const {
    return static_cast<std::int32_t>(weight_shares_[stage].size()) - 1;
  }

  Seconds wire_seconds(Rank from, Rank to, Bytes bytes) const { return links_.wire_seconds(from, to, bytes); }
  std::optional<std::int32_t> shared_resource(Rank from, Rank to) const { return links_.shared_resource(from, to); }
  std::optional<std::int32_t> shared_copy(Rank rank, Lane lane) const { return links_.shared_copy(rank, lane); }

  const CostShape& shape() const { return shape_; }
  const HardwareOptions& hardware() const { return hardware_; }

 private:
  using StagePrices = std::vector<Seconds>;  ///< by stage, or by stage and slice

  /// @throws Error bad_input for a price that no machine can have
  void check_prices() const;
  void fill_unit_prices();
  void fill_compute_prices();
  void fill_host_prices();
  template <class TimeOf>
  void fill_weight_shares(const TimeOf& time_of);
  Seconds of_part(const Schedule& schedule, const Action& weight, Seconds whole) const;
  /// Of a forward stage whose layers belong to the ranks of the backward pass: those of other nodes send their share,
  /// in proportion to the layers (SPipe, methods 1.3).
  Seconds decoupled_fetch(const Schedule& schedule, const ActionOnRank& node) const;
  StagePrices& of(Op op) { return prices_[static_cast<std::size_t>(op)]; }
  Seconds at(Op op, std::size_t place) const { return prices_[static_cast<std::size_t>(op)][place]; }

  CostShape shape_;
  HardwareOptions hardware_;
  Links links_;
  PerStage<StageBytes> bytes_;
  Bytes message_;
  PerStage<std::vector<double>> weight_shares_;  ///< of W's price, what its first 0, 1, ... products have
  std::array<StagePrices, op_count> prices_;
};

/// The layers of the smallest block that all stages of both passes are made of: what a phase is.
std::int32_t common_layers(const CostShape& shape);

}  // namespace penstock
