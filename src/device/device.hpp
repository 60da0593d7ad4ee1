// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace penstock {

/// The completion of one piece of queued work. Cheap to copy; a default-constructed event is complete.
class Event {
 public:
  /// What a backend implements for one piece of work.
  class State {
   public:
    virtual ~State() = default;
    virtual bool is_complete() const = 0;
    /// Blocks (without spinning) until the work is complete. Rethrows what the work, or work that it waited for, threw.
    virtual void wait() const = 0;
    /// Calls `callback` once, when the work is complete or has failed (at once if it has); from the completing thread.
    /// It must not throw, nor block for long.
    virtual void on_complete(std::function<void()> callback) = 0;
    virtual std::exception_ptr failure() const = 0;
    /// When the work itself began and ended (waits excluded). Valid once complete.
    virtual Seconds started() const = 0;
    virtual Seconds finished() const = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_{std::move(state)} {}
  bool is_complete() const { return !state_ || state_->is_complete(); }
  void wait() const {
    if (state_) state_->wait();
  }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// An asynchronous in-order lane of a device: work runs one piece after the other, in order of submission.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Queues `work` to run after the earlier work of this queue and after all of `after`. Returns at once. If an earlier
  /// piece or one of `after` failed, `work` is not run and the event carries that failure.
  virtual Event submit(std::vector<Event> after, std::function<void()> work) = 0;
  /// The same, but `work` may run before earlier work of this queue that waits, once all of `after` is complete; work
  /// so submitted stays in order among itself. A queue that cannot look ahead runs it in its place.
  virtual Event submit_early(std::vector<Event> after, std::function<void()> work) {
    return submit(std::move(after), std::move(work));
  }
};

/// Random waits put before queued work, to find missing dependences; results must be bitwise the same with them.
struct DelayOptions {
  std::uint64_t seed = 0;
  Seconds longest{0};  ///< 0: none
};

/// Memory, queues and copies of one accelerator. `device/host` is the asynchronous host implementation, `device/priced`
/// waits in place of work; `device/cuda` is to come. All functions may be called from one thread; work of different
/// queues runs concurrently.
class Device {
 public:
  virtual ~Device() = default;
  /// "host, 2.00 GiB": for the log.
  virtual std::string description() const = 0;
  /// The device's memory for this run: one aligned block of `capacity`, allocated once, and never exceeded.
  /// @throws Error does_not_fit if the machine cannot give it. @pre called once.
  virtual std::byte* reserve(Bytes capacity) = 0;
  /// A new queue; `name` is for errors and debuggers ("compute", "to_host").
  virtual std::unique_ptr<Queue> make_queue(const std::string& name) = 0;
  /// Queues a copy on `queue`; the memory must live until the event.
  virtual Event copy_to_device(Queue& queue, std::vector<Event> after, std::byte* device, const std::byte* host,
                               Bytes bytes) = 0;
  virtual Event copy_to_host(Queue& queue, std::vector<Event> after, std::byte* host, const std::byte* device,
                             Bytes bytes) = 0;
};

}  // namespace penstock
