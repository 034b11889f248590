#include "lockstep/autograd/ops/shape.hpp"

#include <numeric>

#include "lockstep/autograd/ops/spatial.hpp"
#include "random/naive.hpp"

// Chains of ops that rearrange elements, against a list that says where each element came from.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr std::int64_t nowhere = -1;  // a constant 0, which has no source

/// A shape, and for each of its elements the source's position that it is a copy of.
struct Origin {
  Shape shape;
  std::vector<std::int64_t> from;

  explicit Origin(const Shape& source)
      : shape(source), from(static_cast<std::size_t>(numel(source))) {
    std::iota(from.begin(), from.end(), 0);
  }
  /// Another shape, each element of which names the index that it is taken from.
  template <class Place>
  Origin taken(const Shape& to, Place&& place) const {
    Origin result(to);
    for (std::int64_t i = 0; i < numel(to); ++i)
      result.from[static_cast<std::size_t>(i)] = place(index_of(i, to));
    return result;
  }
  std::int64_t at(const Dims& index) const {
    return from[static_cast<std::size_t>(position_of(index, shape))];
  }
};

/// A tensor beside what naive indexing makes of it.
struct Pair {
  Tensor tensor;
  Origin origin;
};

int any_dim(RandomCase& c, const Shape& shape) {
  return static_cast<int>(c.integer(0, shape.size() - 1));
}

Pair permuted(RandomCase& c, const Pair& x) {
  Dims order;
  for (int d = 0; d < x.origin.shape.size(); ++d)
    order.insert(static_cast<int>(c.integer(0, d)), d);
  Shape to = x.origin.shape;
  for (int d = 0; d < to.size(); ++d) to[d] = x.origin.shape[static_cast<int>(order[d])];
  c.note("permute ", order);
  return {x.tensor.permute(order), x.origin.taken(to, [&](const Dims& index) {
            Dims source = index;
            for (int d = 0; d < index.size(); ++d) source[static_cast<int>(order[d])] = index[d];
            return x.origin.at(source);
          })};
}

/// The same elements in a shape whose extents are products of neighbouring ones, or their factors.
Pair reshaped(RandomCase& c, const Pair& x) {
  Shape to;
  std::int64_t joined = 1;
  for (const auto extent : x.origin.shape) {
    joined *= extent;
    if (c.chance(0.5)) to.push_back(joined), joined = 1;
  }
  if (joined != 1 || c.chance(0.2)) to.push_back(joined);
  for (int d = 0; d < to.size() && to.size() < 6; ++d)
    for (const std::int64_t factor : {2, 3})
      if (to[d] > factor && to[d] % factor == 0 && c.chance(0.3)) {
        to[d] /= factor;
        to.insert(d, factor);
        break;
      }
  if (to.size() < 6 && c.chance(0.3)) to.insert(static_cast<int>(c.integer(0, to.size())), 1);
  Origin origin = x.origin;
  origin.shape = to;
  Shape asked = to;
  if (numel(to) > 0 && to.size() > 0 && c.chance(0.3)) asked[any_dim(c, to)] = -1;
  c.note("reshape ", asked);
  return {x.tensor.reshape(asked), origin};
}

Pair sliced(RandomCase& c, const Pair& x) {
  const int d = any_dim(c, x.origin.shape);
  const std::int64_t extent = x.origin.shape[d], start = c.integer(0, extent);
  const std::int64_t end = c.integer(start, extent), step = c.integer(1, 3);
  Shape to = x.origin.shape;
  to[d] = 0;
  for (std::int64_t i = start; i < end; i += step) ++to[d];
  c.note("slice ", d, ' ', start, ':', end, ':', step);
  return {x.tensor.slice(d, start, c.chance(0.2) && end < extent ? end - extent : end, step),
          x.origin.taken(to, [&](Dims index) {
            index[d] = start + index[d] * step;
            return x.origin.at(index);
          })};
}

Pair selected(RandomCase& c, const Pair& x) {
  const int d = any_dim(c, x.origin.shape);
  const std::int64_t extent = x.origin.shape[d];
  if (extent == 0) return x;
  const std::int64_t at = c.integer(0, extent - 1);
  Shape to = x.origin.shape;
  to.erase(d);
  c.note("select ", d, ' ', at);
  return {x.tensor.select(d, c.chance(0.3) ? at - extent : at), x.origin.taken(to, [&](Dims index) {
            index.insert(d, at);
            return x.origin.at(index);
          })};
}

Pair expanded(RandomCase& c, const Pair& x) {
  Shape to = x.origin.shape;
  for (int d = 0; d < to.size(); ++d)
    if (to[d] == 1 && c.chance(0.7)) to[d] = c.integer(0, 3);
  if (to.size() < 6 && c.chance(0.5)) to.insert(0, c.integer(0, 3));
  if (numel(to) > 2000) return x;
  c.note("expand ", to);
  return {
      x.tensor.expand(to), x.origin.taken(to, [&](const Dims& index) {
        return x.origin.from[static_cast<std::size_t>(broadcast_position(index, x.origin.shape))];
      })};
}

Pair flipped(RandomCase& c, const Pair& x) {
  const int d = any_dim(c, x.origin.shape);
  c.note("flip ", d);
  return {flip(x.tensor, {d}), x.origin.taken(x.origin.shape, [&](Dims index) {
            index[d] = x.origin.shape[d] - 1 - index[d];
            return x.origin.at(index);
          })};
}

Pair rolled(RandomCase& c, const Pair& x) {
  const int d = any_dim(c, x.origin.shape);
  const std::int64_t shift = c.integer(-7, 7), extent = x.origin.shape[d];
  c.note("roll ", d, " by ", shift);
  return {roll(x.tensor, shift, d), x.origin.taken(x.origin.shape, [&](Dims index) {
            index[d] = (((index[d] - shift) % extent) + extent) % extent;
            return x.origin.at(index);
          })};
}

Pair padded(RandomCase& c, const Pair& x) {
  const int d = x.origin.shape.size() - 1;
  const std::int64_t before = c.integer(0, 3), after = c.integer(0, 3);
  Shape to = x.origin.shape;
  to[d] += before + after;
  c.note("pad ", before, ", ", after);
  return {pad(x.tensor, std::vector{before, after}), x.origin.taken(to, [&](Dims index) {
            index[d] -= before;
            const bool inside = index[d] >= 0 && index[d] < x.origin.shape[d];
            return inside ? x.origin.at(index) : nowhere;
          })};
}

/// Padded by elements of its own.
Pair surrounded(RandomCase& c, const Pair& x) {
  const auto mode = c.choose({PaddingMode::reflect, PaddingMode::replicate, PaddingMode::circular});
  Shape to = x.origin.shape;
  std::vector<std::int64_t> padding;
  for (int d = to.size() - 1; d >= 0 && padding.size() < 6 && c.chance(0.7); --d) {
    const std::int64_t extent = to[d];
    if (extent == 0) break;
    const std::int64_t most = mode == PaddingMode::reflect    ? extent - 1
                              : mode == PaddingMode::circular ? extent
                                                              : 3;
    for (int side = 0; side < 2; ++side)
      padding.push_back(c.integer(0, std::min<std::int64_t>(most, 3)));
    to[d] += padding[padding.size() - 2] + padding.back();
  }
  if (numel(to) > 2000) return x;
  c.note("pad ", static_cast<int>(mode), " of ", padding.size() / 2, " dimensions");
  return {pad(x.tensor, padding, mode), x.origin.taken(to, [&](Dims index) {
            for (std::size_t i = 0; i < padding.size(); i += 2) {
              const int d = to.size() - 1 - static_cast<int>(i / 2);
              const std::int64_t extent = x.origin.shape[d];
              std::int64_t& at = index[d];
              at -= padding[i];
              if (mode == PaddingMode::circular) at = (at + extent) % extent;
              if (mode == PaddingMode::replicate) at = std::clamp<std::int64_t>(at, 0, extent - 1);
              if (at < 0) at = -at;
              if (at >= extent) at = 2 * (extent - 1) - at;
            }
            return x.origin.at(index);
          })};
}

Pair triangular(RandomCase& c, const Pair& x) {
  if (x.origin.shape.size() < 2) return x;
  const bool upper = c.chance(0.5);
  const std::int64_t diagonal = c.integer(-4, 4);
  const int d = x.origin.shape.size() - 2;
  c.note(upper ? "triu " : "tril ", diagonal);
  return {upper ? triu(x.tensor, diagonal) : tril(x.tensor, diagonal),
          x.origin.taken(x.origin.shape, [&](const Dims& index) {
            const std::int64_t off = index[d + 1] - index[d];
            return (upper ? off >= diagonal : off <= diagonal) ? x.origin.at(index) : nowhere;
          })};
}

/// The tensor joined with a part of itself.
Pair joined(RandomCase& c, const Pair& x) {
  const Pair part = sliced(c, x);
  int d = 0;
  while (d + 1 < x.origin.shape.size() && x.origin.shape[d] == part.origin.shape[d]) ++d;
  Shape to = x.origin.shape;
  to[d] += part.origin.shape[d];
  if (numel(to) > 2000) return x;
  c.note("cat ", d);
  return {cat({x.tensor, part.tensor}, d), x.origin.taken(to, [&](Dims index) {
            const std::int64_t extent = x.origin.shape[d];
            if (index[d] < extent) return x.origin.at(index);
            index[d] -= extent;
            return part.origin.at(index);
          })};
}

/// Cut in two and put together the other way round.
Pair swapped(RandomCase& c, const Pair& x) {
  const int d = any_dim(c, x.origin.shape);
  const std::int64_t extent = x.origin.shape[d], cut = c.integer(0, extent);
  c.note("split ", d, " at ", cut);
  const std::vector<Tensor> parts = split(x.tensor, {cut, extent - cut}, d);
  return {cat({parts[1], parts[0]}, d), x.origin.taken(x.origin.shape, [&](Dims index) {
            index[d] = (index[d] + cut) % extent;
            return x.origin.at(index);
          })};
}

Pair stacked(RandomCase& c, const Pair& x) {
  Shape to = x.origin.shape;
  const auto d = static_cast<int>(c.integer(0, to.size()));
  if (to.size() >= 6 || numel(to) > 1000) return x;
  to.insert(d, 2);
  c.note("stack ", d);
  return {stack({x.tensor, x.tensor}, d), x.origin.taken(to, [&](Dims index) {
            index.erase(d);
            return x.origin.at(index);
          })};
}

Pair repeated(RandomCase& c, const Pair& x) {
  Dims times;
  Shape to = x.origin.shape;
  if (to.size() < 6 && c.chance(0.3)) to.insert(0, 1);
  for (int d = 0; d < to.size(); ++d) {
    times.push_back(c.chance(0.05) ? 0 : c.integer(1, 3));
    to[d] *= times[d];
  }
  if (numel(to) > 2000) return x;
  c.note("repeat ", times);
  const int lead = to.size() - x.origin.shape.size();
  return {repeat(x.tensor, times), x.origin.taken(to, [&](const Dims& index) {
            Dims source = x.origin.shape;
            for (int d = 0; d < source.size(); ++d) source[d] = index[lead + d] % x.origin.shape[d];
            return x.origin.at(source);
          })};
}

Pair diagonal(RandomCase& c, const Pair& x) {
  if (x.origin.shape.size() < 2) return x;
  const std::int64_t offset = c.integer(-3, 3);
  Shape to = x.origin.shape;
  const std::int64_t rows = to[0], columns = to[1];
  const std::int64_t first = std::max<std::int64_t>(-offset, 0);
  to.erase(1);
  to.erase(0);
  to.push_back(std::max<std::int64_t>(0, std::min(rows - first, columns - first - offset)));
  c.note("diagonal ", offset);
  return {x.tensor.diagonal(offset, 0, 1), x.origin.taken(to, [&](Dims index) {
            const std::int64_t row = first + index.back();
            index.erase(index.size() - 1);
            index.insert(0, row + offset);
            index.insert(0, row);
            return x.origin.at(index);
          })};
}

Pair interleaved(RandomCase& c, const Pair& x) {
  const int d = any_dim(c, x.origin.shape);
  const std::int64_t extent = x.origin.shape[d];
  const bool alike = c.chance(0.5);
  std::vector<std::int64_t> times(static_cast<std::size_t>(extent), c.integer(0, 3)), from;
  for (std::int64_t i = 0; i < extent; ++i) {
    auto& number = times[static_cast<std::size_t>(i)];
    if (!alike) number = c.integer(0, 3);
    from.insert(from.end(), static_cast<std::size_t>(number), i);
  }
  Shape to = x.origin.shape;
  to[d] = std::ssize(from);
  if (numel(to) > 2000) return x;
  c.note("repeat_interleave ", d, alike ? " alike" : "");
  const Tensor numbers = from_span<std::int64_t>(times, {extent}).to(x.tensor.device());
  return {alike && extent > 0 ? repeat_interleave(x.tensor, times[0], d)
                              : repeat_interleave(x.tensor, numbers, d),
          x.origin.taken(to, [&](Dims index) {
            index[d] = from[static_cast<std::size_t>(index[d])];
            return x.origin.at(index);
          })};
}

Pair as_diagonal(RandomCase& c, const Pair& x) {
  const std::int64_t offset = c.integer(-2, 2), above = std::max<std::int64_t>(offset, 0);
  if (x.origin.shape.size() != 1 || x.origin.shape[0] > 40) return x;
  const std::int64_t side = x.origin.shape[0] + std::abs(offset);
  c.note("diag ", offset);
  return {diag(x.tensor, offset), x.origin.taken({side, side}, [&](const Dims& index) {
            return index[1] - index[0] == offset ? x.origin.at({index[1] - above}) : nowhere;
          })};
}

/// Channels as pixels, or back.
Pair shuffled(RandomCase& c, const Pair& x) {
  const int d = x.origin.shape.size() - 3;
  if (d < 0) return x;
  const std::int64_t factor = c.integer(1, 2);
  Shape to = x.origin.shape;
  const bool back = c.chance(0.5);
  if (back ? to[d + 1] % factor + to[d + 2] % factor : to[d] % (factor * factor)) return x;
  to[d] = back ? to[d] * factor * factor : to[d] / (factor * factor);
  for (int i = d + 1; i < d + 3; ++i) to[i] = back ? to[i] / factor : to[i] * factor;
  c.note(back ? "pixel_unshuffle " : "pixel_shuffle ", factor);
  return {back ? pixel_unshuffle(x.tensor, factor) : pixel_shuffle(x.tensor, factor),
          x.origin.taken(to, [&](Dims index) {
            std::int64_t &channel = index[d], &row = index[d + 1], &column = index[d + 2];
            if (back) {
              row = row * factor + channel / factor % factor;
              column = column * factor + channel % factor;
              channel /= factor * factor;
            } else {
              channel = (channel * factor + row % factor) * factor + column % factor;
              row /= factor, column /= factor;
            }
            return x.origin.at(index);
          })};
}

Pair recopied(RandomCase& c, const Pair& x) {
  if (x.origin.shape.size() != 4) return x;
  c.note("channels_last");
  return {x.tensor.channels_last(), x.origin};
}

class RandomShape : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    using Step = Pair (*)(RandomCase&, const Pair&);
    constexpr Step steps[] = {permuted,   reshaped,    sliced,      selected, expanded,
                              flipped,    rolled,      padded,      joined,   triangular,
                              swapped,    stacked,     repeated,    diagonal, recopied,
                              surrounded, interleaved, as_diagonal, shuffled};
    const RandomTensor x = c.tensor(c.shape(static_cast<int>(c.integer(0, 4)), 12, 300), {0, 100});
    const bool recorded = is_floating(c.setting().dtype);
    const Tensor source = recorded ? leaf(x) : x.tensor;
    Pair now{source, Origin(x.shape())};
    for (auto left = c.integer(1, 4); left > 0; --left) {
      const auto which = static_cast<std::size_t>(c.integer(0, std::size(steps) - 1));
      // A scalar can only be given dimensions.
      const bool scalar = now.origin.shape.empty();
      now = (scalar ? (c.chance(0.5) ? reshaped : expanded) : steps[which])(c, now);
    }
    Expected y(numel(now.origin.shape)), dx(numel(x.shape()));
    for (std::int64_t i = 0; i < numel(now.origin.shape); ++i) {
      const std::int64_t from = now.origin.from[static_cast<std::size_t>(i)];
      y.values[static_cast<std::size_t>(i)] = from == nowhere ? 0 : at(x.values, from);
    }
    if (auto r = agrees(now.tensor, now.origin.shape, y, 0); !r) return r;
    if (!recorded || !now.tensor.requires_grad()) return AssertionSuccess();
    const RandomTensor dy = c.tensor(now.origin.shape);
    for (std::int64_t i = 0; i < numel(now.origin.shape); ++i)
      if (const auto from = now.origin.from[static_cast<std::size_t>(i)]; from != nowhere)
        dx.add(from, at(dy.values, i));
    if (now.tensor.is_same(source)) return AssertionSuccess();
    now.tensor.backward(dy);
    // Gradients that meet are rounded at every step of the chain.
    const double allowed = 16 * test::rounding(c.setting().dtype);
    if (auto r = agrees(source.grad(), x.shape(), dx, allowed); !r) return r << ": the gradient";
    return AssertionSuccess();
  }
};

TEST_P(RandomShape, AgreesWithIndexing) { run_cases(190, check_case); }
TEST_P(RandomShape, SlowAgreesWithIndexing) { run_cases(15000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomShape,
                         ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16,
                                                       DType::f16, DType::i64, DType::i32,
                                                       DType::u8, DType::boolean})),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
