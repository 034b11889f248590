#include "arguments/interpolation.hpp"

#include <algorithm>
#include <vector>

#include "cpu/tiles.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using functional::Takers;
using functional::Taps;

void check(const ArrayView& y, const ArrayView& x, const InterpolationAxis& height,
           const InterpolationAxis& width) {
  const bool fit = y.rank() == 4 && x.rank() == 4 && y.dtype == x.dtype &&
                   y.shape == Shape{x.shape[0], x.shape[1], height.out, width.out} &&
                   x.shape[2] == height.in && x.shape[3] == width.in;
  LOCKSTEP_CHECK(fit, InvalidArgument, "interpolation: ", x.dtype, ' ', x.shape,
                 " does not resize to ", y.dtype, ' ', y.shape);
}

/// The terms of every result along one dimension; `visit(j, add)` calls `add(from, weight)` for
/// those of result j whose weight is not 0.
template <class A>
class TermTable {
 public:
  template <class Visit>
  TermTable(std::int64_t results, Visit&& visit) : results_(results) {
    for (std::int64_t j = 0; j < results; ++j) {
      std::int64_t count = 0;
      visit(j, [&](std::int64_t, double) { ++count; });
      terms_ = std::max(terms_, count);
    }
    weight_.resize(static_cast<std::size_t>(terms_ * results));
    from_.resize(weight_.size());
    for (std::int64_t j = 0; j < results; ++j) {
      auto at = static_cast<std::size_t>(j);
      visit(j, [&](std::int64_t from, double weight) {
        weight_[at] = static_cast<A>(weight);
        from_[at] = static_cast<std::int32_t>(from);
        at += static_cast<std::size_t>(results);
      });
    }
  }

  ResizeTerms<A> view() const { return {weight_.data(), from_.data(), results_, terms_}; }

  /// Calls `visit(from, weight)` for the terms of one result.
  template <class Visit>
  void of(std::int64_t result, Visit&& visit) const {
    auto at = static_cast<std::size_t>(result);
    for (std::int64_t k = 0; k < terms_; ++k, at += static_cast<std::size_t>(results_))
      if (weight_[at] != A(0)) visit(static_cast<std::int64_t>(from_[at]), weight_[at]);
  }

 private:
  std::int64_t results_, terms_ = 1;
  std::vector<A> weight_;
  std::vector<std::int32_t> from_;
};

/// What the positions of the result are made of.
template <class A>
TermTable<A> terms_of_result(const InterpolationAxis& axis) {
  return {axis.out, [&axis](std::int64_t i, auto&& add) {
            const Taps taps = functional::taps_of(axis, i);
            add(taps.low, 1 - taps.share);
            if (taps.share != 0) add(taps.high, taps.share);
          }};
}

/// What the gradients of the positions of the input are made of.
template <class A>
TermTable<A> terms_of_gradient(const InterpolationAxis& axis) {
  std::vector<Taps> taps;
  for (std::int64_t i = 0; i < axis.out; ++i) taps.push_back(functional::taps_of(axis, i));
  return {axis.in, [&axis, &taps](std::int64_t at, auto&& add) {
            const Takers takers = functional::takers_of(axis, at);
            for (std::int64_t i = takers.begin; i < takers.end; ++i)
              if (const double share = functional::share_of(taps[static_cast<std::size_t>(i)], at);
                  share != 0)
                add(i, share);
          }};
}

/// Rows of images as groups of neighbours that are resized alike: all channels of a position, or
/// one of one channel.
struct ImageRows {
  std::int64_t channels, height, elements, step;  ///< rows are `elements` long, `step` apart
  ArrayView view;

  ImageRows(const ArrayView& of, bool all_channels)
      : channels(all_channels ? 1 : of.shape[1]),
        height(of.shape[2]),
        elements(of.shape[3] * (all_channels ? of.shape[1] : 1)),
        step(all_channels ? 1 : of.strides[3]),
        view(of) {}

  /// True if rows are arrays of the accumulation type.
  bool is_plain() const { return step == 1 && is_accumulate_type(view.dtype); }

  char* at(std::int64_t plane, std::int64_t row) const {
    const std::int64_t offset = plane / channels * view.strides[0] +
                                plane % channels * view.strides[1] + row * view.strides[2];
    return view.as<char>() + offset * static_cast<std::int64_t>(lockstep::size_of(view.dtype));
  }
};

/// True if all channels of a row follow one another.
bool has_channels_last(const ArrayView& view) {
  return view.strides[1] == 1 && view.strides[3] == view.shape[1];
}

/// Makes every row of `to`, in parallel: rows of `from` are added up, then resized.
template <class A>
class Resizing {
 public:
  Resizing(const ArrayView& to, const ArrayView& from, const TermTable<A>& rows,
           const TermTable<A>& columns)
      : all_channels_(has_channels_last(to) && has_channels_last(from)),
        to_(to, all_channels_),
        from_(from, all_channels_),
        rows_(rows),
        columns_(columns) {}

  void run() const {
    const std::int64_t planes = to_.view.shape[0] * to_.channels;
    const std::int64_t grain =
        std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, to_.elements));
    parallel_for(planes * to_.height, grain, [this](std::int64_t begin, std::int64_t end) {
      Scratch scratch(*this);
      for (std::int64_t i = begin; i < end; ++i) make_row(i / to_.height, i % to_.height, scratch);
    });
  }

 private:
  struct Scratch {
    std::vector<A> loaded, sum, result;

    explicit Scratch(const Resizing& of)
        : loaded(static_cast<std::size_t>(of.from_.elements)),
          sum(loaded.size()),
          result(static_cast<std::size_t>(of.to_.elements)) {}
  };

  void make_row(std::int64_t plane, std::int64_t row, Scratch& scratch) const {
    const std::int64_t group = all_channels_ ? to_.view.shape[1] : 1;
    sum_rows(plane, row, scratch);
    char* const to = to_.at(plane, row);
    A* const result = to_.is_plain() ? reinterpret_cast<A*>(to) : scratch.result.data();
    loops_.resize_row(result, scratch.sum.data(), columns_.view(), group);
    if (!to_.is_plain()) loops().store(type, to_.view.dtype)(to, to_.step, result, to_.elements);
  }

  /// Adds up the rows of the input that make up one of the result.
  void sum_rows(std::int64_t plane, std::int64_t row, Scratch& scratch) const {
    const LoadLoop load = loops().load[static_cast<std::size_t>(from_.view.dtype)];
    bool more = false;
    rows_.of(row, [&](std::int64_t from, A weight) {
      const char* const memory = from_.at(plane, from);
      const A* x = reinterpret_cast<const A*>(memory);
      if (!from_.is_plain()) {
        load(scratch.loaded.data(), memory, from_.step, from_.elements);
        x = scratch.loaded.data();
      }
      loops_.add_row(scratch.sum.data(), x, weight, more, from_.elements);
      more = true;
    });
    if (!more) std::ranges::fill(scratch.sum, A(0));
  }

  static const ResizeLoops<A>& loops_of_type() {
    if constexpr (type == Accumulate::f32)
      return loops().resize_f32;
    else
      return loops().resize_f64;
  }

  static constexpr Accumulate type = sizeof(A) == 4 ? Accumulate::f32 : Accumulate::f64;
  const ResizeLoops<A>& loops_ = loops_of_type();
  bool all_channels_;
  ImageRows to_, from_;
  const TermTable<A>&rows_, &columns_;
};

}  // namespace

void interpolation::forward(const kernels::InterpolationArguments& a, StreamRef) {
  check(a.y, a.x, a.height, a.width);
  dispatch_floating(a.x.dtype, "interpolate", [&](auto tag) {
    using A = AccumulateType<typename decltype(tag)::type>;
    const auto rows = terms_of_result<A>(a.height), columns = terms_of_result<A>(a.width);
    Resizing<A>(a.y, a.x, rows, columns).run();
  });
}

void interpolation::backward(const kernels::InterpolationBackwardArguments& a, StreamRef) {
  check(a.dy, a.dx, a.height, a.width);
  dispatch_floating(a.dx.dtype, "interpolate backward", [&](auto tag) {
    using A = AccumulateType<typename decltype(tag)::type>;
    const auto rows = terms_of_gradient<A>(a.height), columns = terms_of_gradient<A>(a.width);
    Resizing<A>(a.dx, a.dy, rows, columns).run();
  });
}

}  // namespace lockstep::cpu_kernels
