// SPDX-License-Identifier: Apache-2.0
//
// What moves between host and device during a step: passes over schedules of compute actions.
#pragma once

#include <cstdint>

#include "schedule/schedule.hpp"

namespace penstock {

/// Keeps the parameters of at most `resident_stages` stages on a device: adds a FETCH before, and an EVICT after, each
/// stay of a stage there.
///
/// A fetch stands as early as a place is free: behind the eviction that makes one, so that with two places or more the
/// next stage is on its way while the one before computes (SPipe's and Mobius's prefetch, methods 1.3); with one place
/// every fetch waits for the stage before (Mobius with blocking prefetch). Where a stage must go, it is the one whose
/// next use is farthest (Belady), though not the one that computes last before the fetched, unless there is one place.
/// W needs no parameters, and keeps no stage on the device.
/// @throws Error bad_input if resident_stages is less than 1. @pre compute actions only
Schedule add_parameter_streaming(const Schedule& schedule, std::int32_t resident_stages);

/// Takes the offloadable part of what a forward keeps to the host and back: OFFLOAD_A directly behind the forward (or
/// R), RELOAD_A before the backward action of the rank that comes before its own, so that one is on its way while one
/// is used (SlimPipe, methods 3.2). Where no more than `nearest` compute actions lie between forward and backward, the
/// activations stay. @pre compute actions only, nearest >= 1
Schedule add_activation_offload(const Schedule& schedule, std::int32_t nearest);

}  // namespace penstock
