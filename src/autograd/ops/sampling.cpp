#include "lockstep/autograd/ops/sampling.hpp"

#include <cstdint>
#include <limits>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/sort.hpp"

namespace lockstep {

LOCKSTEP_OP(bernoulli, floating, follow, same)
LOCKSTEP_OP(multinomial, floating, follow, same)
LOCKSTEP_OP(randint, any, follow, same)
LOCKSTEP_OP(randperm, any, follow, same)

namespace {

using namespace autograd;

/// Uniform over [0, 1) in steps of 2^-48: one word has too few for many categories.
Tensor fine_uniform(const Shape& shape, TensorOptions options, Generator& generator) {
  const Tensor coarse = rand(shape, options, generator), fine = rand(shape, options, generator);
  return add(coarse, fine, 0x1p-24);
}

void check_multinomial(const Tensor& weights, std::int64_t num_samples, bool replacement) {
  LOCKSTEP_CHECK(weights.dim() == 1 || weights.dim() == 2, InvalidArgument, ops::multinomial.name,
                 ": weights of shape ", weights.shape(),
                 "; they need one dimension, or two for rows");
  const std::int64_t categories = weights.size(-1);
  LOCKSTEP_CHECK(num_samples > 0 && categories > 0 && (replacement || num_samples <= categories),
                 InvalidArgument, ops::multinomial.name, ": ", num_samples, " draws ",
                 replacement ? "with" : "without", " replacement from ", categories, " categories");
}

void check_values(const Tensor& weights, std::int64_t num_samples, bool replacement) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor sums = sum(weights, -1);
  // One weight above 0 is what the sum tells; what else may be wrong is looked for after that.
  if (weights.numel() > 0 && (replacement || num_samples == 1) &&
      amin(weights).item<double>() >= 0.0 &&
      all(logical_and(sums > 0.0, sums < infinity)).item<bool>())
    return;
  LOCKSTEP_CHECK(all(logical_and(weights >= 0.0, weights < infinity)).item<bool>(), InvalidArgument,
                 ops::multinomial.name, ": a weight is negative, infinite or NaN");
  LOCKSTEP_CHECK(all(sums < infinity).item<bool>(), InvalidArgument, ops::multinomial.name,
                 ": the weights of a row add up to more than f64 holds; scale them down");
  const std::int64_t needed = replacement ? 1 : num_samples;
  LOCKSTEP_CHECK(all(sum(weights > 0.0, {-1}) >= static_cast<double>(needed)).item<bool>(),
                 InvalidArgument, ops::multinomial.name, ": a row has fewer than ", needed,
                 " weights above 0, as many as must be drawn");
}

/// The number up to which a floating dtype holds all whole ones.
std::int64_t largest_counted(DType dtype) {
  if (dtype == DType::f64) return std::int64_t{1} << 53;
  if (dtype == DType::f32) return 1 << 24;
  return dtype == DType::f16 ? 1 << 11 : 1 << 8;
}

/// Any number between both may be drawn.
void check_drawn(std::int64_t least, std::int64_t largest, DType dtype) {
  if (is_floating(dtype)) {
    const std::int64_t limit = largest_counted(dtype);
    LOCKSTEP_CHECK(least >= -limit && largest <= limit, InvalidArgument, ops::randint.name,
                   ": dtype ", dtype, " holds each whole number up to ", limit, ", but not from ",
                   least, " to ", largest, "; draw i64 and convert that");
    return;
  }
  LOCKSTEP_CHECK(dtype != DType::boolean || (least >= 0 && largest <= 1), InvalidArgument,
                 ops::randint.name, ": dtype bool holds 0 and 1, but not ", least, " to ", largest);
  check_holds(ops::randint.name, dtype, least);
  check_holds(ops::randint.name, dtype, largest);
}

}  // namespace

Tensor multinomial(const Tensor& weights, std::int64_t num_samples, bool replacement,
                   Generator& generator) {
  const OpCall call(ops::multinomial, weights);
  check_multinomial(weights, num_samples, replacement);
  const NoGradGuard no_recording;
  const Tensor w = weights.to(DType::f64);
  if (can_look_at(w)) check_values(w, num_samples, replacement);
  Shape shape = w.shape();
  if (replacement) {
    shape.back() = num_samples;
    const Tensor sums = cumsum(w, -1), total = sums.narrow(-1, w.size(-1) - 1, 1);
    // Below the total, so that what is found has a weight above 0.
    return searchsorted(sums, fine_uniform(shape, w.options(), generator) * total, true);
  }
  // The order in which exponential clocks of these rates ring (Efraimidis and Spirakis 2006).
  const Tensor ring = neg(log1p(neg(fine_uniform(shape, w.options(), generator))));
  return topk(w / (ring + 1e-300), num_samples).second;
}

Tensor bernoulli(const Tensor& probabilities, Generator& generator) {
  const ComposedOp call(ops::bernoulli, probabilities);
  const NoGradGuard no_recording;
  const Tensor p = probabilities.to(statistics_dtype(probabilities.dtype()));
  LOCKSTEP_CHECK(!can_look_at(p) || all(logical_and(p >= 0, p <= 1)).item<bool>(), InvalidArgument,
                 call.name(), ": a probability is not in [0, 1]");
  return (rand(p.shape(), p.options(), generator) < p).to(probabilities.dtype());
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options,
               Generator& generator) {
  const ComposedOp call(ops::randint);
  // The difference may be past i64, but not past 64 bits.
  const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  LOCKSTEP_CHECK(low < high && count <= std::uint64_t{1} << 48, InvalidArgument, call.name(), ": [",
                 low, ", ", high, ") must hold from 1 to 2^48 numbers");
  check_drawn(low, high - 1, options.dtype);
  const NoGradGuard no_recording;
  // A draw lies 2^-48 below 1, or more: too far for its product to round up to the count.
  const Tensor drawn = fine_uniform(shape, {DType::f64, options.device}, generator) * count;
  return add(floor(drawn).to(DType::i64), low).to(options.dtype);
}

Tensor randperm(std::int64_t n, Device device, Generator& generator) {
  const ComposedOp call(ops::randperm);
  return argsort(fine_uniform({n}, {DType::f64, device}, generator));
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, std::int64_t dim,
                      Generator& generator) {
  LOCKSTEP_CHECK(tau > 0, InvalidArgument, "gumbel_softmax: tau is ", tau, ", it must be above 0");
  LOCKSTEP_CHECK(is_floating(logits.dtype()), Unsupported, "gumbel_softmax: logits of ",
                 logits.dtype(), "; it needs a floating dtype");
  const DType wide = statistics_dtype(logits.dtype());
  // Steps of 2^-48 from half of one on: a 0 would make a category impossible, a 1 the others.
  const Tensor uniform =
      fine_uniform(logits.shape(), {DType::f64, logits.device()}, generator) + 0x1p-49;
  const Tensor noise = neg(log(neg(log(uniform)))).to(wide);
  const Tensor soft = softmax((logits.to(wide) + noise) / tau, dim);
  if (!hard) return soft.to(logits.dtype());
  const Tensor chosen = argmax(soft.detach(), dim, /*keepdim=*/true);
  const Tensor one_hot = scatter(zeros(soft.shape(), soft.options()), dim, chosen, 1);
  return (one_hot - soft.detach() + soft).to(logits.dtype());
}

}  // namespace lockstep
