// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>

#include "comm/communicator.hpp"

namespace penstock {

/// Collective: if any rank hands in an exception, every rank throws the Error of the lowest such rank, which it names.
void agree(const Communicator& group, const std::exception_ptr& mine);

/// Runs `work`, then agrees on its outcome.
void do_and_agree(const Communicator& group, const std::function<void()>& work);

}  // namespace penstock
