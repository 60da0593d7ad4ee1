// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_cases.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.hpp"
#include "kernels/workers.hpp"

namespace penstock::test {
namespace {

/// A number that differs by name, so that no two tensors are alike.
std::uint64_t seed_of(const std::string& name) {
  return std::accumulate(name.begin(), name.end(), std::uint64_t{7},
                         [](std::uint64_t seed, char c) { return seed * 131 + static_cast<unsigned char>(c); });
}

/// Standard normal numbers; tensors begin at different places of this list, whose length is prime.
const std::vector<double>& normal_numbers() {
  static const std::vector<double> numbers = [] {
    const CounterRandom random{7, RandomPurpose::tests, 0};
    std::vector<double> all(65521);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = random.normal(i);
    return all;
  }();
  return numbers;
}

GuardedTensor normal_tensor(const std::string& name, DType type, std::int64_t rows, std::int64_t columns) {
  GuardedTensor tensor{type, rows, columns};
  const auto& numbers = normal_numbers();
  std::size_t place = seed_of(name) % numbers.size();
  std::vector<double> values(static_cast<std::size_t>(rows * columns));
  for (double& value : values) {
    value = numbers[place];
    if (++place == numbers.size()) place = 0;
  }
  tensor.set(values);
  return tensor;
}

/// Integers in [lowest, bound).
GuardedTensor index_tensor(std::int64_t columns, std::int64_t lowest, std::int64_t bound) {
  GuardedTensor tensor{DType::i32, 1, columns};
  const CounterRandom random{11, RandomPurpose::tests, 0};
  std::vector<double> values(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(lowest) + std::floor(random.uniform(i) * static_cast<double>(bound - lowest));
  }
  tensor.set(values);
  return tensor;
}

/// Makes tensors of the storage type (s) and of the accumulation type (a).
struct Maker {
  DType storage;
  Tensors tensors;
  Maker& s(const std::string& name, std::int64_t rows, std::int64_t columns) {
    tensors[name] = normal_tensor(name, storage, rows, columns);
    return *this;
  }
  Maker& a(const std::string& name, std::int64_t rows, std::int64_t columns) {
    tensors[name] = normal_tensor(name, DType::f32, rows, columns);
    return *this;
  }
  Maker& i(const std::string& name, std::int64_t columns, std::int64_t lowest, std::int64_t bound) {
    tensors[name] = index_tensor(columns, lowest, bound);
    return *this;
  }
};

constexpr std::int64_t width = 70;
constexpr std::int64_t vocabulary = 257;

/// An operation on [tokens, width] tensors of the storage type, the first of them the output.
Operation elementwise(const std::string& name, const std::vector<std::string>& outputs,
                      const std::vector<std::string>& inputs, std::function<void(Kernels&, Tensors&)> run) {
  const auto make = [=](DType storage, std::int64_t tokens) {
    Maker maker{storage, {}};
    for (const auto& output : outputs) maker.s(output, tokens, width);
    for (const auto& input : inputs) maker.s(input, tokens, width);
    return maker.tensors;
  };
  return {name, make, std::move(run), outputs};
}

std::vector<Operation> elementwise_operations() {
  return {
      elementwise("add", {"out"}, {"a", "b"},
                  [](Kernels& k, Tensors& t) { k.add(t["out"].matrix(), t["a"].matrix(), t["b"].matrix()); }),
      elementwise("gelu", {"out"}, {"in"}, [](Kernels& k, Tensors& t) { k.gelu(t["out"].matrix(), t["in"].matrix()); }),
      elementwise(
          "gelu_gradient", {"din"}, {"dout", "in"},
          [](Kernels& k, Tensors& t) { k.gelu_gradient(t["din"].matrix(), t["dout"].matrix(), t["in"].matrix()); }),
      elementwise("swiglu", {"out"}, {"gate", "up"},
                  [](Kernels& k, Tensors& t) { k.swiglu(t["out"].matrix(), t["gate"].matrix(), t["up"].matrix()); }),
      elementwise("swiglu_gradient", {"dgate", "dup"}, {"dout", "gate", "up"},
                  [](Kernels& k, Tensors& t) {
                    k.swiglu_gradient(t["dgate"].matrix(), t["dup"].matrix(), t["dout"].matrix(), t["gate"].matrix(),
                                      t["up"].matrix());
                  }),
      elementwise("copy", {"out"}, {"in"}, [](Kernels& k, Tensors& t) { k.copy(t["out"].matrix(), t["in"].matrix()); }),
      elementwise("zero", {"out"}, {}, [](Kernels& k, Tensors& t) { k.zero(t["out"].matrix()); }),
      elementwise("rotate", {"x"}, {},
                  [](Kernels& k, Tensors& t) {
                    k.rotate(t["x"].matrix(), 5, std::max<std::int64_t>(1, t["x"].rows()), 3, 1e4,
                             Kernels::Rotation::forward);
                  }),
      elementwise("rotate_back", {"x"}, {},
                  [](Kernels& k, Tensors& t) { k.rotate(t["x"].matrix(), 1, 1, 2, 5e5, Kernels::Rotation::inverse); })};
}

Operation rms_norm() {
  return {"rms_norm",
          [](DType storage, std::int64_t tokens) {
            return Maker{storage, {}}
                .s("out", tokens, width)
                .a("inverse", 1, tokens)
                .s("in", tokens, width)
                .s("weight", 1, width)
                .tensors;
          },
          [](Kernels& k, Tensors& t) {
            k.rms_norm(t["out"].matrix(), t["inverse"].matrix(), t["in"].matrix(), t["weight"].matrix(), 1e-5);
          },
          {"out", "inverse"}};
}

Operation rms_norm_gradient(bool with_residual) {
  return {with_residual ? "rms_norm_gradient_with_residual" : "rms_norm_gradient",
          [](DType storage, std::int64_t tokens) {
            return Maker{storage, {}}
                .s("din", tokens, width)
                .a("dweight", 1, width)
                .s("dout", tokens, width)
                .s("in", tokens, width)
                .a("inverse", 1, tokens)
                .s("weight", 1, width)
                .s("residual", tokens, width)
                .tensors;
          },
          [=](Kernels& k, Tensors& t) {
            k.rms_norm_gradient(t["din"].matrix(), t["dweight"].matrix(), t["dout"].matrix(), t["in"].matrix(),
                                t["inverse"].matrix(), t["weight"].matrix(),
                                with_residual ? ConstMatrix{t["residual"].matrix()} : ConstMatrix{});
          },
          {"din", "dweight"}};
}

Operation layer_norm() {
  return {"layer_norm",
          [](DType storage, std::int64_t tokens) {
            return Maker{storage, {}}
                .s("out", tokens, width)
                .a("mean", 1, tokens)
                .a("inverse", 1, tokens)
                .s("in", tokens, width)
                .s("weight", 1, width)
                .s("bias", 1, width)
                .tensors;
          },
          [](Kernels& k, Tensors& t) {
            k.layer_norm(t["out"].matrix(), t["mean"].matrix(), t["inverse"].matrix(), t["in"].matrix(),
                         t["weight"].matrix(), t["bias"].matrix(), 1e-5);
          },
          {"out", "mean", "inverse"}};
}

Operation layer_norm_gradient(bool with_residual) {
  return {with_residual ? "layer_norm_gradient_with_residual" : "layer_norm_gradient",
          [](DType storage, std::int64_t tokens) {
            return Maker{storage, {}}
                .s("din", tokens, width)
                .a("dweight", 1, width)
                .a("dbias", 1, width)
                .s("dout", tokens, width)
                .s("in", tokens, width)
                .a("mean", 1, tokens)
                .a("inverse", 1, tokens)
                .s("weight", 1, width)
                .s("residual", tokens, width)
                .tensors;
          },
          [=](Kernels& k, Tensors& t) {
            k.layer_norm_gradient(t["din"].matrix(), t["dweight"].matrix(), t["dbias"].matrix(), t["dout"].matrix(),
                                  t["in"].matrix(), t["mean"].matrix(), t["inverse"].matrix(), t["weight"].matrix(),
                                  with_residual ? ConstMatrix{t["residual"].matrix()} : ConstMatrix{});
          },
          {"din", "dweight", "dbias"}};
}

std::vector<Operation> table_operations() {
  const auto make = [](DType storage, std::int64_t tokens) {
    return Maker{storage, {}}
        .s("out", tokens, width)
        .i("tokens", tokens, 0, 19)
        .s("words", 19, width)
        .s("positions", tokens + 6, width)
        .tensors;
  };
  const auto make_gradient = [](DType storage, std::int64_t tokens) {
    return Maker{storage, {}}
        .a("dwords", 19, width)
        .a("dpositions", tokens + 6, width)
        .s("dout", tokens, width)
        .i("tokens", tokens, -3, 19)
        .tensors;
  };
  return {{"embedding",
           make,
           [](Kernels& k, Tensors& t) {
             k.embedding(t["out"].matrix(), t["tokens"].matrix(), t["words"].matrix(), {}, 1, 0);
           },
           {"out"}},
          {"embedding_with_positions",
           make,
           [](Kernels& k, Tensors& t) {
             k.embedding(t["out"].matrix(), t["tokens"].matrix(), t["words"].matrix(), t["positions"].matrix(),
                         std::max<std::int64_t>(1, t["out"].rows()), 5);
           },
           {"out"}},
          {"embedding_gradient",
           make_gradient,
           [](Kernels& k, Tensors& t) {
             k.embedding_gradient(t["dwords"].matrix(), t["dpositions"].matrix(), t["dout"].matrix(),
                                  t["tokens"].matrix(), 1, 4);
           },
           {"dwords", "dpositions"}}};
}

/// in[tokens, in_width] · weight[out_width, in_width]^T and its gradients.
std::vector<Operation> linear_operations(const std::string& suffix, std::int64_t in_width, std::int64_t out_width) {
  const auto make = [=](DType storage, std::int64_t tokens) {
    return Maker{storage, {}}
        .s("out", tokens, out_width)
        .a("logits", tokens, out_width)
        .s("in", tokens, in_width)
        .s("weight", out_width, in_width)
        .s("bias", 1, out_width)
        .s("dout", tokens, out_width)
        .s("din", tokens, in_width)
        .a("dweight", out_width, in_width)
        .a("dbias", 1, out_width)
        .tensors;
  };
  return {{"linear" + suffix,
           make,
           [](Kernels& k, Tensors& t) {
             k.linear(t["out"].matrix(), t["in"].matrix(), t["weight"].matrix(), t["bias"].matrix());
           },
           {"out"}},
          {"linear_logits" + suffix,
           make,
           [](Kernels& k, Tensors& t) { k.linear(t["logits"].matrix(), t["in"].matrix(), t["weight"].matrix(), {}); },
           {"logits"}},
          {"linear_biased_logits" + suffix,
           make,
           [](Kernels& k, Tensors& t) {
             k.linear(t["logits"].matrix(), t["in"].matrix(), t["weight"].matrix(), t["bias"].matrix());
           },
           {"logits"}},
          {"linear_input_gradient" + suffix,
           make,
           [](Kernels& k, Tensors& t) {
             k.linear_input_gradient(t["din"].matrix(), t["dout"].matrix(), t["weight"].matrix(),
                                     Kernels::Write::overwrite);
           },
           {"din"}},
          {"linear_input_gradient_added" + suffix,
           make,
           [](Kernels& k, Tensors& t) {
             k.linear_input_gradient(t["din"].matrix(), t["dout"].matrix(), t["weight"].matrix(),
                                     Kernels::Write::accumulate);
           },
           {"din"}},
          {"linear_weight_gradient" + suffix,
           make,
           [](Kernels& k, Tensors& t) {
             k.linear_weight_gradient(t["dweight"].matrix(), t["dout"].matrix(), t["in"].matrix());
           },
           {"dweight"}},
          {"bias_gradient" + suffix,
           make,
           [](Kernels& k, Tensors& t) { k.bias_gradient(t["dbias"].matrix(), t["dout"].matrix()); },
           {"dbias"}}};
}

/// `tokens` are those of one sequence; `extra_keys` > 0 is attention to more keys than queries, without a mask.
std::vector<Operation> attention_operations(const std::string& suffix, AttentionShape base, std::int64_t extra_keys) {
  const auto shape_for = [=](std::int64_t tokens) {
    AttentionShape shape = base;
    shape.query_tokens = tokens;
    shape.key_tokens = tokens + extra_keys;
    shape.causal = extra_keys == 0;
    return shape;
  };
  const auto make = [=](DType storage, std::int64_t tokens) {
    const AttentionShape shape = shape_for(tokens);
    const std::int64_t queries = shape.sequences * shape.query_tokens;
    const std::int64_t keys = shape.sequences * shape.key_tokens;
    const std::int64_t q_width = shape.heads * shape.head_size;
    const std::int64_t kv_width = shape.kv_heads * shape.head_size;
    Maker maker{storage, {}};
    maker.s("out", queries, q_width)
        .a("lse", shape.heads, queries)
        .s("q", queries, q_width)
        .s("k", keys, kv_width)
        .s("v", keys, kv_width)
        .s("dout", queries, q_width)
        .s("dq", queries, q_width)
        .s("dk", keys, kv_width)
        .s("dv", keys, kv_width);
    // The gradient takes what the forward left.
    Tensors exact = in_double(maker.tensors);
    make_reference_kernels()->attention(shape, exact["out"].matrix(), exact["lse"].matrix(), exact["q"].matrix(),
                                        exact["k"].matrix(), exact["v"].matrix());
    for (const auto* name : {"out", "lse"}) maker.tensors[name].set(exact[name].values());
    return maker.tensors;
  };
  const auto shape_of = [=](Tensors& t) { return shape_for(t["q"].rows() / base.sequences); };
  return {{"attention" + suffix,
           make,
           [=](Kernels& k, Tensors& t) {
             k.attention(shape_of(t), t["out"].matrix(), t["lse"].matrix(), t["q"].matrix(), t["k"].matrix(),
                         t["v"].matrix());
           },
           {"out", "lse"}},
          {"attention_gradient" + suffix,
           make,
           [=](Kernels& k, Tensors& t) {
             k.attention_gradient(shape_of(t), t["dq"].matrix(), t["dk"].matrix(), t["dv"].matrix(), t["dout"].matrix(),
                                  t["out"].matrix(), t["lse"].matrix(), t["q"].matrix(), t["k"].matrix(),
                                  t["v"].matrix());
           },
           {"dq", "dk", "dv"}}};
}

/// Attention of the last slice of a sequence to its own keys and to those of two earlier, longer slices. The newest
/// chunk's sums, of a slice behind it, are there or not.
std::vector<Operation> sliced_attention_operations(const std::string& suffix, AttentionShape base, bool has_later) {
  const auto shape_for = [=](std::int64_t tokens) {
    AttentionShape shape = base;
    shape.query_tokens = tokens;
    shape.key_tokens = 3 * tokens + 2;
    return shape;
  };
  const auto chunks_of = [=](Tensors& t) {
    std::vector<KeyValueChunk> chunks;
    for (const char* number : {"0", "1", "2"}) {
      const auto matrix = [&](const char* name) { return t.at(std::string{name} + number).matrix(); };
      chunks.push_back({matrix("k"), matrix("v"), matrix("dk_sum"), matrix("dv_sum")});
    }
    if (!has_later) chunks.back().k_gradient = chunks.back().v_gradient = {};
    return chunks;
  };
  const auto make = [=](DType storage, std::int64_t tokens) {
    const AttentionShape shape = shape_for(tokens);
    const std::int64_t queries = shape.sequences * tokens;
    const std::int64_t q_width = shape.heads * shape.head_size;
    const std::int64_t kv_width = shape.kv_heads * shape.head_size;
    Maker maker{storage, {}};
    maker.s("out", queries, q_width)
        .a("lse", shape.heads, queries)
        .s("q", queries, q_width)
        .s("dout", queries, q_width)
        .s("dq", queries, q_width)
        .s("dk", queries, kv_width)
        .s("dv", queries, kv_width);
    for (const char* number : {"0", "1", "2"}) {
      const std::int64_t keys = number[0] == '2' ? queries : queries + shape.sequences;
      for (const char* name : {"k", "v"}) maker.s(std::string{name} + number, keys, kv_width);
      for (const char* name : {"dk_sum", "dv_sum"}) maker.a(std::string{name} + number, keys, kv_width);
    }
    // The gradient takes what the forward left.
    Tensors exact = in_double(maker.tensors);
    make_reference_kernels()->attention(shape, exact["out"].matrix(), exact["lse"].matrix(), exact["q"].matrix(),
                                        chunks_of(exact));
    for (const auto* name : {"out", "lse"}) maker.tensors[name].set(exact[name].values());
    return maker.tensors;
  };
  const auto shape_of = [=](Tensors& t) { return shape_for(t["q"].rows() / base.sequences); };
  return {{"attention" + suffix,
           make,
           [=](Kernels& k, Tensors& t) {
             k.attention(shape_of(t), t["out"].matrix(), t["lse"].matrix(), t["q"].matrix(), chunks_of(t));
           },
           {"out", "lse"}},
          {"attention_gradient" + suffix,
           make,
           [=](Kernels& k, Tensors& t) {
             k.attention_gradient(shape_of(t), t["dq"].matrix(), t["dk"].matrix(), t["dv"].matrix(), t["dout"].matrix(),
                                  t["out"].matrix(), t["lse"].matrix(), t["q"].matrix(), chunks_of(t));
           },
           {"dq", "dk", "dv", "dk_sum0", "dv_sum0", "dk_sum1", "dv_sum1"}}};
}

/// Attention to a part of the keys: some tokens of one chunk, and all of another, as whoever helps another rank sees
/// them.
std::vector<Operation> attention_part_operations(const std::string& suffix, AttentionShape base) {
  const auto shape_for = [=](std::int64_t tokens) {
    AttentionShape shape = base;
    shape.query_tokens = tokens;
    shape.key_tokens = 2 * tokens;
    shape.causal = false;
    return shape;
  };
  const auto chunks_of = [=](Tensors& t) {
    std::vector<KeyValueChunk> chunks;
    for (const char* number : {"0", "1"}) {
      const auto matrix = [&](const char* name) { return t.at(std::string{name} + number).matrix(); };
      chunks.push_back({matrix("k"), matrix("v"), matrix("dk_sum"), matrix("dv_sum")});
    }
    chunks.front().first_token = 2;
    chunks.front().tokens = t["q"].rows() / base.sequences;
    return chunks;
  };
  const auto make = [=](DType storage, std::int64_t tokens) {
    const AttentionShape shape = shape_for(tokens);
    const std::int64_t queries = shape.sequences * tokens;
    const std::int64_t q_width = shape.heads * shape.head_size;
    const std::int64_t kv_width = shape.kv_heads * shape.head_size;
    Maker maker{storage, {}};
    maker.a("out", queries, q_width)
        .a("lse", shape.heads, queries)
        .a("shift", shape.heads, queries)
        .s("q", queries, q_width)
        .s("dout", queries, q_width)
        .a("dq", queries, q_width);
    for (const char* number : {"0", "1"}) {
      const std::int64_t keys = number[0] == '0' ? queries + 3 * shape.sequences : queries;
      for (const char* name : {"k", "v"}) maker.s(std::string{name} + number, keys, kv_width);
      for (const char* name : {"dk_sum", "dv_sum"}) maker.a(std::string{name} + number, keys, kv_width);
    }
    // The gradient takes what the forward left.
    Tensors exact = in_double(maker.tensors);
    make_reference_kernels()->attention(shape, exact["out"].matrix(), exact["lse"].matrix(), exact["q"].matrix(),
                                        chunks_of(exact));
    maker.tensors["lse"].set(exact["lse"].values());
    return maker.tensors;
  };
  const auto shape_of = [=](Tensors& t) { return shape_for(t["q"].rows() / base.sequences); };
  return {{"attention_part" + suffix,
           make,
           [=](Kernels& k, Tensors& t) {
             k.attention(shape_of(t), t["out"].matrix(), t["lse"].matrix(), t["q"].matrix(), chunks_of(t));
           },
           {"out", "lse"}},
          {"attention_part_gradient" + suffix,
           make,
           [=](Kernels& k, Tensors& t) {
             k.attention_part_gradient(shape_of(t), t["dq"].matrix(), t["dout"].matrix(), t["lse"].matrix(),
                                       t["shift"].matrix(), t["q"].matrix(), chunks_of(t));
           },
           {"dq", "dk_sum0", "dv_sum0", "dk_sum1", "dv_sum1"}}};
}

/// What makes one attention of parts, for 3 heads of 30.
std::vector<Operation> merging_operations() {
  constexpr std::int64_t heads = 3;
  constexpr std::int64_t head_width = 30 * heads;
  const auto make = [](DType storage, std::int64_t tokens) {
    Maker maker{storage, {}};
    maker.s("out", tokens, head_width).s("dout", tokens, head_width).a("lse", heads, tokens).a("shift", heads, tokens);
    for (const char* number : {"0", "1", "2"}) {
      maker.a(std::string{"out"} + number, tokens, head_width).a(std::string{"lse"} + number, heads, tokens);
    }
    return maker.tensors;
  };
  return {
      {"merge_attention",
       make,
       [](Kernels& k, Tensors& t) {
         std::vector<AttentionPart> parts;
         for (const char* number : {"0", "1", "2"}) {
           parts.push_back({t[std::string{"out"} + number].matrix(), t[std::string{"lse"} + number].matrix()});
         }
         k.merge_attention(t["out"].matrix(), t["lse"].matrix(), parts);
       },
       {"out", "lse"}},
      {"attention_shift",
       make,
       [](Kernels& k, Tensors& t) { k.attention_shift(t["shift"].matrix(), t["dout"].matrix(), t["out"].matrix()); },
       {"shift"}},
      {"add_parts",
       make,
       [](Kernels& k, Tensors& t) {
         const std::vector<ConstMatrix> parts{t["out0"].matrix(), t["out1"].matrix(), t["out2"].matrix()};
         k.add_parts(t["out"].matrix(), parts);
         k.add_parts(t["out0"].matrix(), parts);  // one of the parts
       },
       {"out", "out0"}}};
}

std::vector<Operation> loss_operations() {
  const auto make = [](DType storage, std::int64_t tokens) {
    Maker maker{storage, {}};
    maker.a("losses", 1, tokens)
        .a("lse", 1, tokens)
        .a("logits", tokens, vocabulary)
        .s("dlogits", tokens, vocabulary)
        .i("targets", tokens, -3, vocabulary);
    Tensors exact = in_double(maker.tensors);
    make_reference_kernels()->cross_entropy(exact["losses"].matrix(), exact["lse"].matrix(), exact["logits"].matrix(),
                                            exact["targets"].matrix());
    maker.tensors["lse"].set(exact["lse"].values());
    return maker.tensors;
  };
  // Of a part of the vocabulary: some targets are among the logits of another part.
  const auto make_part = [make](DType storage, std::int64_t tokens) {
    Tensors tensors = make(storage, tokens);
    std::vector<double> targets = tensors["targets"].values();
    std::replace(targets.begin(), targets.end(), -2.0, static_cast<double>(target_elsewhere));
    tensors["targets"].set(targets);
    return tensors;
  };
  return {{"cross_entropy",
           make,
           [](Kernels& k, Tensors& t) {
             k.cross_entropy(t["losses"].matrix(), t["lse"].matrix(), t["logits"].matrix(), t["targets"].matrix());
           },
           {"losses", "lse"}},
          {"cross_entropy_of_a_part",
           make_part,
           [](Kernels& k, Tensors& t) {
             k.cross_entropy(t["losses"].matrix(), t["lse"].matrix(), t["logits"].matrix(), t["targets"].matrix());
           },
           {"losses", "lse"}},
          {"cross_entropy_gradient_of_a_part",
           make_part,
           [](Kernels& k, Tensors& t) {
             k.cross_entropy_gradient(t["dlogits"].matrix(), t["logits"].matrix(), t["lse"].matrix(),
                                      t["targets"].matrix(), 0.37);
           },
           {"dlogits"}},
          {"cross_entropy_gradient",
           make,
           [](Kernels& k, Tensors& t) {
             k.cross_entropy_gradient(t["dlogits"].matrix(), t["logits"].matrix(), t["lse"].matrix(),
                                      t["targets"].matrix(), 0.37);
           },
           {"dlogits"}}};
}

std::vector<Operation> make_operations() {
  std::vector<Operation> all{rms_norm(),   rms_norm_gradient(false),   rms_norm_gradient(true),
                             layer_norm(), layer_norm_gradient(false), layer_norm_gradient(true)};
  const auto append = [&](std::vector<Operation> more) {
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  append(elementwise_operations());
  append(table_operations());
  append(linear_operations("", width, 131));
  append(linear_operations("_of_many_tiles", 19, 1031));
  append(linear_operations("_of_great_depth", 5003, 17));
  append(linear_operations("_of_many_outputs", 17, 4999));
  append(attention_operations("", {.sequences = 2, .heads = 3, .kv_heads = 3, .head_size = 10}, 0));
  append(attention_operations("_grouped", {.sequences = 1, .heads = 6, .kv_heads = 2, .head_size = 33}, 0));
  append(attention_operations("_to_more_keys", {.sequences = 2, .heads = 2, .kv_heads = 1, .head_size = 16}, 530));
  append(
      sliced_attention_operations("_of_a_slice", {.sequences = 2, .heads = 3, .kv_heads = 3, .head_size = 10}, true));
  append(sliced_attention_operations("_of_the_last_slice", {.heads = 6, .kv_heads = 2, .head_size = 33}, false));
  append(attention_part_operations("", {.sequences = 2, .heads = 3, .kv_heads = 3, .head_size = 10}));
  append(attention_part_operations("_grouped", {.heads = 6, .kv_heads = 2, .head_size = 33}));
  append(merging_operations());
  append(loss_operations());
  return all;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = make_operations();
  return all;
}

TestedKernels::TestedKernels(std::int32_t threads)
    : workers_{std::make_unique<Workers>(threads)}, kernels_{make_host_kernels(*workers_)} {
  const KernelLimits limits{
      .tokens = 700,
      .width = 5003,
      .vocabulary = vocabulary,
      .attention = {.query_tokens = 700, .key_tokens = 1230, .heads = 6, .head_size = 33, .causal = false}};
  const Bytes bytes = kernels_->scratch_bytes(limits);
  scratch_ = GuardedTensor{DType::i32, 1, divide_up(bytes.value, 4)};
  kernels_->bind_scratch({scratch_.matrix().data, static_cast<std::size_t>(bytes.value)});
}

TestedKernels::~TestedKernels() = default;

TestedKernels& TestedKernels::on(std::int32_t threads) {
  static std::map<std::int32_t, TestedKernels> all;
  return all.try_emplace(threads, threads).first->second;
}

}  // namespace penstock::test
