// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/describe.hpp"
#include "base/units.hpp"
#include "schedule/place.hpp"
#include "schedule/recompute.hpp"

namespace penstock {

/// How a rank reads the parameters that a rank of another node owns.
enum class Fetch : std::uint8_t {
  message,  ///< it asks their owner, whose service thread sends them
  get       ///< it reads the owner's memory (MPI_Get)
};

constexpr std::array<EnumName<Fetch>, 2> enum_names(Fetch) {
  return {{{Fetch::message, "message"}, {Fetch::get, "get"}}};
}

/// How a step that was taken before the norm was known is taken back.
enum class Rollback : std::uint8_t {
  copy,    ///< from a second buffer of masters and moments: to the bit
  inverse  ///< by inverting AdamW's arithmetic: without a buffer, to rounding
};

constexpr std::array<EnumName<Rollback>, 2> enum_names(Rollback) {
  return {{{Rollback::copy, "copy"}, {Rollback::inverse, "inverse"}}};
}

/// The section `memory` of a deck.
struct MemoryOptions {
  Bytes device{std::int64_t{2} << 30};  ///< device memory that one rank may use
  RecomputeList recompute_by_stage;     ///< takes the place of recompute
  std::optional<Bytes> host;            ///< memory of a node that its ranks may use together
  std::optional<Recompute> recompute;   ///< none when absent; mobius and spipe are always full
  std::optional<Place> parameters;      ///< of the working copy; the device when absent, with mobius and spipe the host
  Fetch fetch = Fetch::message;
  std::int32_t resident_stages = 2;    ///< stages whose parameters a device then holds at once
  double offload_activations = 0;      ///< share of the activations that waits on the host
  Place optimizer = Place::host;       ///< masters, moments and the step
  Rollback rollback = Rollback::copy;  ///< with training.clip_mode: speculative
  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, MemoryOptions& options) {
  visit("device", options.device,
        {.help = "device memory that one rank may use; planned before the run, never exceeded", .range = at_least(1)});
  visit("host", options.host,
        {.help = "memory that the ranks of one node may use together, the memory of host devices included; planned "
                 "before the run",
         .range = at_least(1),
         .when_absent = "what the node has"});
  visit("recompute_by_stage", options.recompute_by_stage,
        {.help = "recompute for each stage of the backward pass, as [full, none, ...]",
         .when_absent = "that of recompute for all stages"});
  visit("recompute", options.recompute,
        {.help = "none: a forward keeps its activations; attention: all but the normed input and the queries of "
                 "attention; selective: all but those between the two products of the feed-forward layer; layers: each "
                 "layer's input, and with slices its keys and values; full: the stage's input; the backward forms the "
                 "rest again",
         .when_absent = "none; mobius and spipe: full, always",
         .not_beside = "recompute_by_stage"});
  visit("parameters", options.parameters,
        {.help = "device: a stage's parameters stay on their device; host: they come from the host for each stay there",
         .when_absent = "device; mobius and spipe: host, always"});
  visit(
      "fetch", options.fetch,
      {.help = "how parameters on the host reach ranks of other nodes; message: their owner sends them; get: they are "
               "read from its memory without it, which MPI cannot do over every network: tried at the start; between "
               "ranks of one "
               "machine Open MPI needs OMPI_MCA_btl_vader_single_copy_mechanism=cma in the environment"});
  visit("resident_stages", options.resident_stages,
        {.help = "stages whose parameters a device holds at once while they come from the host: with 2 the next one is "
                 "on its way while one computes",
         .unit = "stages",
         .range = between(1, 1024)});
  visit(
      "offload_activations", options.offload_activations,
      {.help = "share of what a forward keeps that goes to the host until its backward is near: whole tensors, so many "
               "that their bytes come nearest to it; keys and values of slices stay",
       .range = between(0, 1)});
  visit("optimizer", options.optimizer,
        {.help = "host: masters and moments lie there, and its CPUs take the step; device: both are the device's. "
                 "simulate and plan alone"});
  visit("rollback", options.rollback,
        {.help = "how training.clip_mode: speculative takes a step back: copy: from a second buffer of masters and "
                 "moments, 12 bytes a parameter on the host, to the bit; inverse: by AdamW's inverse arithmetic, equal "
                 "to rounding, without a buffer"});
}

}  // namespace penstock
