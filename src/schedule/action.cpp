// SPDX-License-Identifier: Apache-2.0
#include "schedule/action.hpp"

namespace penstock {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::forward:
      return "F";
    case Op::backward:
      return "B";
    case Op::backward_input:
      return "I";
    case Op::backward_weight:
      return "W";
    case Op::recompute:
      return "R";
    case Op::send_forward:
      return "SEND_F";
    case Op::receive_forward:
      return "RECV_F";
    case Op::send_backward:
      return "SEND_B";
    case Op::receive_backward:
      return "RECV_B";
    case Op::send_checkpoint:
      return "SEND_C";
    case Op::receive_checkpoint:
      return "RECV_C";
    case Op::offload_activations:
      return "OFFLOAD_A";
    case Op::reload_activations:
      return "RELOAD_A";
    case Op::embed_forward:
      return "EF";
    case Op::embed_backward:
      return "EB";
    case Op::vocabulary_forward:
      return "VF";
    case Op::vocabulary_backward:
      return "VB";
    case Op::fetch_forward:
      return "FETCH_F";
    case Op::fetch_backward:
      return "FETCH_B";
    case Op::evict_forward:
      return "EVICT_F";
    case Op::evict_backward:
      return "EVICT_B";
    case Op::offload_gradients:
      return "OFFLOAD_G";
    case Op::reduce:
      return "REDUCE";
    case Op::validate:
      return "VALIDATE";
    case Op::step:
      return "STEP";
    case Op::undo:
      return "UNDO";
  }
  return "unknown";
}

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::to_device:
      return "to_device";
    case Lane::to_host:
      return "to_host";
    case Lane::cpu:
      return "cpu";
    case Lane::send:
      return "send";
    case Lane::receive:
      return "receive";
  }
  return "unknown";
}

bool is_per_micro_batch(Op op) {
  return op < Op::fetch_forward;
}

bool names_micro_batch(Op op) {
  return op < Op::offload_gradients;
}

bool is_collective(Op op) {
  return op >= Op::embed_forward && op <= Op::vocabulary_backward;
}

Pass pass_of(Op op) {
  switch (op) {
    case Op::forward:
    case Op::embed_forward:
    case Op::vocabulary_forward:
    case Op::send_forward:
    case Op::receive_forward:
    case Op::fetch_forward:
    case Op::evict_forward:
      return Pass::forward;
    default:
      return Pass::backward;
  }
}

// The enumerators before fetch_forward work on a micro-batch, those from there on a stage; the names of
// those before offload_gradients tell micro-batches apart.
static_assert(static_cast<int>(Op::vocabulary_backward) + 1 == static_cast<int>(Op::fetch_forward));
static_assert(static_cast<int>(Op::evict_backward) + 1 == static_cast<int>(Op::offload_gradients));
static_assert(static_cast<int>(Op::undo) + 1 == op_count);

}  // namespace penstock
