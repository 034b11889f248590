#include "lockstep/parallel/power_sgd.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/alike_on_all_ranks.hpp"
#include "core/fnv_hash.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/tensor/factories.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::parallel {
namespace {

DType working_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Shape matrix_shape(const Tensor& gradient) {
  const std::int64_t rows = gradient.size(0);
  return {rows, gradient.numel() / rows};
}

/// Columns times what makes their largest element 1: no square of it overflows or vanishes. Of
/// zeros, infinities and NaN as they are.
Tensor scaled_columns(const Tensor& p) {
  const Tensor largest = amax(abs(p), {1}, true);
  return where(logical_and(gt(largest, 0.0), isfinite(largest)), p / largest, p);
}

struct Columns {
  Tensor values;  // [k, n, r], orthonormal; zero where they are not alive
  Tensor alive;   // [k, 1, r]
};

/// Gram and Schmidt's, each column against those before it twice. What is left of a column that
/// depends on the others is rounding, and no direction.
Columns orthonormalize(const Tensor& p) {
  const double tolerance = p.dtype() == DType::f64 ? 1e-12 : 1e-5;
  const Tensor zero = zeros({}, p.options());
  Columns done;
  for (std::int64_t i = 0; i < p.size(2); ++i) {
    Tensor column = scaled_columns(p.slice(2, i, i + 1));
    const Tensor before = norm(column, 1, true);
    for (int pass = 0; i > 0 && pass < 2; ++pass)
      column = column - bmm(done.values, bmm(done.values.transpose(1, 2), column));
    const Tensor left = norm(column, 1, true);
    const Tensor alive = logical_not(le(left, before * tolerance));  // NaN is, and stays
    column = where(alive, column / left, zero);
    done = i == 0 ? Columns{column, alive}
                  : Columns{cat({done.values, column}, 2), cat({done.alive, alive}, 2)};
  }
  return done;
}

}  // namespace

/// The gradients of a bucket that have one shape as matrices.
class PowerSgd::Matrices {
 public:
  Matrices(Shape shape, std::int64_t rank) : shape_(shape), rank_(rank) {}

  const Shape& shape() const { return shape_; }
  void add(std::size_t place, const Tensor& gradient, State& state) {
    places_.push_back(place);
    gradients_.push_back(gradient);
    states_.push_back(&state);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(gradients_.size()); }
  std::int64_t elements_of_p() const { return count() * shape_[0] * rank_; }
  std::int64_t elements_of_q() const { return count() * shape_[1] * rank_; }

  /// This rank's P, into its place of what is sent.
  void write_p(Tensor place, DType dtype) {
    m_ = empty({count(), shape_[0], shape_[1]}, {dtype, place.device()});
    std::vector<Tensor> q;
    for (std::int64_t i = 0; i < count(); ++i) {
      Tensor m = m_.select(0, i);
      m.copy_(gradients_[index(i)].reshape(shape_));
      const State& state = *states_[index(i)];
      if (state.error.defined()) m.add_(state.error);
      q.push_back(state.q);
    }
    q_before_ = stack(q);
    place.copy_(bmm(m_, q_before_).reshape({-1}));
  }

  /// This rank's Q from the average of P, into its place of what is sent.
  void write_q(const Tensor& p, Tensor place) {
    const AlikeOnAllRanks replicas_stay_equal;
    columns_ = orthonormalize(p.reshape({count(), shape_[0], rank_}));
    place.copy_(bmm(m_.transpose(1, 2), columns_.values).reshape({-1}));
  }

  /// The gradients from the average of Q, and what the next step needs.
  void finish(const Tensor& average, const GradBucket& bucket) {
    const AlikeOnAllRanks replicas_stay_equal;
    const Tensor q = average.reshape({count(), shape_[1], rank_});
    const Tensor is_finite = isfinite(amax(abs(q), {1, 2}, true));
    const Tensor approximations = bmm(columns_.values, q.transpose(1, 2));
    // A column that P lacks tells nothing of Q: it tries again with what it had.
    const Tensor next_q =
        where(logical_and(is_finite, columns_.alive), scaled_columns(q), q_before_);
    m_.sub_(approximations);
    for (std::int64_t i = 0; i < count(); ++i) {
      if (!bucket.is_used(places_[index(i)])) continue;  // what was sent is not applied
      State& state = *states_[index(i)];
      gradients_[index(i)].copy_(approximations.select(0, i).reshape(gradients_[index(i)].shape()));
      state.q.copy_(next_q.select(0, i));
      if (state.error.defined())
        state.error.copy_(where(is_finite.select(0, i), m_.select(0, i), state.error));
    }
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  Shape shape_;  // [n, m]
  std::int64_t rank_;
  std::vector<std::size_t> places_;  // in the bucket
  std::vector<Tensor> gradients_;
  std::vector<State*> states_;
  Tensor m_, q_before_;  // [k, n, m], [k, m, r]
  Columns columns_;
};

PowerSgd::PowerSgd(const PowerSgdOptions& options) : options_(options) {
  LOCKSTEP_CHECK(options_.matrix_approximation_rank >= 1, InvalidArgument,
                 "PowerSgd: matrix_approximation_rank is ", options_.matrix_approximation_rank,
                 "; must be 1 or more");
  LOCKSTEP_CHECK(options_.start_iteration >= 0, InvalidArgument, "PowerSgd: start_iteration is ",
                 options_.start_iteration, "; must not be negative");
  LOCKSTEP_CHECK(options_.min_compression_rate > 0, InvalidArgument,
                 "PowerSgd: min_compression_rate is ", options_.min_compression_rate,
                 "; must be positive");
}

std::string PowerSgd::name() const {
  return detail::concat(
      "PowerSGD of rank ", options_.matrix_approximation_rank, " after ", options_.start_iteration,
      " backwards (", iterations_, " so far), from 1/", options_.min_compression_rate,
      options_.use_error_feedback ? ", with" : ", without", " error feedback, ",
      options_.warm_start ? "warm" : "cold", " start, seed ", options_.random_seed);
}

std::int64_t PowerSgd::rank_of(const Tensor& gradient) const {
  const Shape shape = matrix_shape(gradient);
  return std::min({shape[0], shape[1], options_.matrix_approximation_rank});
}

bool PowerSgd::is_compressed(const Tensor& gradient) const {
  if (gradient.dim() < 2 || gradient.numel() == 0) return false;
  const Shape shape = matrix_shape(gradient);
  return static_cast<double>((shape[0] + shape[1]) * rank_of(gradient)) *
             options_.min_compression_rate <
         static_cast<double>(gradient.numel());
}

/// The same on all ranks.
Tensor PowerSgd::random_factor(const std::string& name, const Tensor& gradient) const {
  const std::uint64_t salt = lockstep::detail::fnv_hash(name.data(), name.size());
  Generator generator(options_.random_seed + salt + static_cast<std::uint64_t>(iterations_));
  return randn({matrix_shape(gradient)[1], rank_of(gradient)}, {.dtype = DType::f64}, generator)
      .to(working_dtype(gradient.dtype()))
      .to(gradient.device());
}

PowerSgd::State& PowerSgd::state_of(const std::string& name, const Tensor& gradient) {
  State& state = states_[name];
  const bool is_new = !state.q.defined();
  if (is_new || !options_.warm_start) {
    if (StepRecording* const recording = StepRecording::on(gradient.device())) {
      if (is_new) recording->suggest_another_try();
      refuse_in_captured_step("PowerSGD draws numbers on the host,",
                              "an eager step that compresses must come before, with warm_start");
    }
    state.q = random_factor(name, gradient);
  }
  if (is_new && options_.use_error_feedback)
    state.error = zeros(matrix_shape(gradient), state.q.options());
  const Shape shape = matrix_shape(gradient);
  LOCKSTEP_CHECK(state.q.shape() == Shape({shape[1], rank_of(gradient)}) &&
                     (!state.error.defined() || state.error.shape() == shape),
                 InvalidArgument, "PowerSgd: of ", name, ", a matrix of shape ", shape,
                 ", it has a factor of shape ", state.q.shape(), " and an error of shape ",
                 state.error.defined() ? state.error.shape() : Shape{},
                 "; each DistributedDataParallel needs a PowerSgd of its own, and a state of its "
                 "rank");
  const auto here = [&](Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(working_dtype(gradient.dtype())).to(gradient.device());
  };
  here(state.q);
  here(state.error);
  return state;
}

/// Counts a backward. @return whether it compresses.
bool PowerSgd::count_backward(Device device) {
  StepRecording* const recording = StepRecording::on(device);
  if (!recording) return ++iterations_ > options_.start_iteration;
  if (std::exchange(recording_, recording->number()) != recording_) in_step_ = 0;
  const std::int64_t nth = ++in_step_;
  const bool compresses = iterations_ + nth > options_.start_iteration;
  const std::weak_ptr<PowerSgd> self = weak_from_this();
  recording->require([self, nth, compresses, loads = loads_]() -> std::string {
    const auto here = self.lock();
    if (!here) return "its PowerSgd has ended";
    if (here->loads_ != loads) return "PowerSGD has loaded a state";
    const bool will = here->iterations_ + nth > here->options_.start_iteration;
    return will == compresses ? "" : "PowerSGD begins to compress";
  });
  recording->before_launch([self] {
    if (const auto here = self.lock()) ++here->iterations_;
  });
  return compresses;
}

BucketExchange PowerSgd::exchange(GradBucket& bucket) {
  if (bucket.index() == 0) compresses_ = count_backward(bucket.buffer().device());
  if (!compresses_) {
    co_await bucket.all_reduce(bucket.buffer());
    co_return;
  }

  std::vector<Matrices> groups;
  std::vector<Tensor> others;
  std::int64_t elements = 0, elements_of_q = 0;
  for (std::size_t i = 0; i < bucket.gradients().size(); ++i) {
    const Tensor& gradient = bucket.gradients()[i];
    if (!is_compressed(gradient)) {
      others.push_back(gradient);
      elements += gradient.numel();
      continue;
    }
    State& state = state_of(bucket.names()[i], gradient);
    const Shape shape = matrix_shape(gradient);
    auto group = std::ranges::find(groups, shape, &Matrices::shape);
    if (group == groups.end())
      group = groups.insert(groups.end(), Matrices(shape, state.q.size(1)));
    group->add(i, gradient, state);
  }
  for (const Matrices& group : groups) {
    elements += group.elements_of_p();
    elements_of_q += group.elements_of_q();
  }
  if (groups.empty()) {
    co_await bucket.all_reduce(bucket.buffer());
    co_return;
  }

  const TensorOptions options{working_dtype(bucket.buffer().dtype()), bucket.buffer().device()};
  const Tensor sent = empty({elements}, options);
  const auto next_of = [](const Tensor& array, std::int64_t& begin, std::int64_t count) {
    begin += count;
    return array.slice(0, begin - count, begin);
  };
  std::int64_t place = 0;
  for (Matrices& group : groups)
    group.write_p(next_of(sent, place, group.elements_of_p()), options.dtype);
  for (const Tensor& other : others) next_of(sent, place, other.numel()).copy_(other.reshape({-1}));
  co_await bucket.all_reduce(sent);

  const Tensor factors = empty({elements_of_q}, options);
  place = 0;
  std::int64_t place_of_q = 0;
  for (Matrices& group : groups)
    group.write_q(next_of(sent, place, group.elements_of_p()),
                  next_of(factors, place_of_q, group.elements_of_q()));
  for (Tensor& other : others)
    other.copy_(next_of(sent, place, other.numel()).reshape(other.shape()));
  co_await bucket.all_reduce(factors);

  place_of_q = 0;
  for (Matrices& group : groups)
    group.finish(next_of(factors, place_of_q, group.elements_of_q()), bucket);
}

NamedTensors PowerSgd::state_dict() const {
  NamedTensors all;
  all.emplace_back("iterations", tensor(iterations_));
  for (const auto& [name, state] : states_) {
    all.emplace_back(name + ".q", state.q.to(cpu).clone());
    if (state.error.defined()) all.emplace_back(name + ".error", state.error.to(cpu).clone());
  }
  return all;
}

void PowerSgd::load_state_dict(const NamedTensors& state) {
  const NoGradGuard no_recording;
  std::map<std::string, State> states;
  std::int64_t iterations = -1;
  for (const auto& [key, value] : state) {
    const std::size_t dot = key.rfind('.');
    const std::string name = key.substr(0, dot);
    const std::string_view kind = dot == std::string::npos ? "" : std::string_view(key).substr(dot);
    const bool is_matrix = value.dim() == 2 && is_floating(value.dtype());
    if (key == "iterations" && value.numel() == 1)
      iterations = static_cast<std::int64_t>(value.item());
    else if (kind == ".q" && is_matrix)
      states[name].q = value.clone();
    else if (kind == ".error" && is_matrix && options_.use_error_feedback)
      states[name].error = value.clone();
    else
      LOCKSTEP_THROW(InvalidArgument, "PowerSgd::load_state_dict: ", key, " of shape ",
                     value.shape(), ", ", value.dtype(), " is no part of its state");
  }
  LOCKSTEP_CHECK(iterations >= 0, InvalidArgument,
                 "PowerSgd::load_state_dict: \"iterations\" is missing, or negative");
  for (const auto& [name, each] : states)
    LOCKSTEP_CHECK(each.q.defined() && each.error.defined() == options_.use_error_feedback,
                   InvalidArgument, "PowerSgd::load_state_dict: \"", name,
                   each.q.defined() ? ".error" : ".q", "\" is missing");
  states_ = std::move(states);
  iterations_ = iterations;
  ++loads_;
}

}  // namespace lockstep::parallel
