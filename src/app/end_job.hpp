// SPDX-License-Identifier: Apache-2.0
//
// How a run of several ranks ends when one of them cannot go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"
#include "execute/watchdog.hpp"

namespace penstock {

/// Called on the rank that ends a job, just before: what it leaves behind. On any thread; must not wait for others.
using BeforeEnd = std::function<void(ExitCode code, const std::string& reason)>;

[[noreturn]] inline void end_job(ExitCode code, const std::string& reason, const BeforeEnd& before_end) {
  log::error(reason);
  if (before_end) before_end(code, reason);
  MpiEnvironment::abort(code);
}

/// Runs a part of a step: what fails on one rank alone ends the job at once, since the others wait for its messages.
/// @throws AgreedError for what all ranks decide alike (values that are not finite), and where there is one rank alone
template <class Work>
auto or_end_job(const Communicator& world, Work&& work, const BeforeEnd& before_end = {}) {
  try {
    return work();
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() == ExitCode::not_finite || world.size() == 1) throw AgreedError{error.code(), error.what()};
    end_job(error.code(), error.what(), before_end);
  }
}

/// What a rank waits for in a part of its run ("step 3"): the actions of a list that are `pending`, or where there are
/// none what is done between lists.
inline std::string pending_in(const std::string& part, const std::string& pending) {
  return pending.empty() ? fmt::format("other ranks or files in {}", part) : fmt::format("{} of {}", pending, part);
}

/// A watchdog that ends the job when `progress` stands still for `limit`, with what is `pending` then. It says so some
/// time before, in which the watchdogs of the other ranks say their own: who is stopped says nothing, and may be waited
/// for by way of others.
inline std::unique_ptr<Watchdog> end_job_without_progress(Seconds limit, std::function<std::int64_t()> progress,
                                                          std::function<std::string()> pending,
                                                          BeforeEnd before_end = {}) {
  return std::make_unique<Watchdog>(
      limit, std::move(progress), [pending = std::move(pending), before_end = std::move(before_end)](Seconds idle) {
        const std::string reason =
            fmt::format("no progress for {:.0f} s (training.watchdog): waiting for {}", idle.value, pending());
        log::error(reason);
        if (before_end) before_end(ExitCode::no_progress, reason);
        std::this_thread::sleep_for(std::chrono::duration<double>{Watchdog::latest_notice(idle).value});
        MpiEnvironment::abort(ExitCode::no_progress);
      });
}

}  // namespace penstock
