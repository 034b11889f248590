#include "arguments/index.hpp"

#include <array>
#include <cstdlib>
#include <cstring>

#include "cpu/lines.hpp"
#include "cpu/raw.hpp"

namespace lockstep::cpu_kernels {
namespace {

[[noreturn]] void refuse(std::int64_t index, std::int64_t extent, std::string_view op) {
  LOCKSTEP_THROW(InvalidArgument, op, ": index ", index, " is outside [0, ", extent, ")");
}

/// The places along a dimension that an index names.
struct Places {
  std::string_view op;
  std::int64_t extent, stride;

  /// How far a place lies from the first. @throws InvalidArgument for an index out of range.
  std::int64_t offset(std::int64_t index) const {
    if (static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(extent)) [[unlikely]]
      refuse(index, extent, op);
    return index * stride;
  }
};

/// Elements that are one stride apart from each other.
template <class T>
struct Run {
  T* data;
  std::int64_t stride;

  T& operator[](std::int64_t i) const { return data[i * stride]; }
};

using IndexRun = Run<const std::int64_t>;

/// A range of a loop.
struct Range {
  std::int64_t begin, end;
};

/// The lines along one dimension of an index, of the elements that go with it, and of the array in
/// which it names places.
class IndexedLines {
 public:
  IndexedLines(const ArrayView& elements, const ArrayView& places, const ArrayView& index, int dim)
      : elements_(elements), places_(places), index_(index), dim_(dim) {
    Shape starts = elements.shape;
    starts[dim] = 1;
    nest_ = make_loop_nest(starts, {&elements.strides, &places.strides, &index.strides});
  }

  /// How many there are, and of how many elements.
  std::int64_t count() const { return nest_.total; }
  std::int64_t length() const { return elements_.shape[dim_]; }

  /// Calls `visit(elements, line, index, n)` for runs of n elements along the lines, or across
  /// lines side by side, the way in which the elements lie closer; each begins in its `line`.
  template <class T, class Visitor>
  void for_each_run(Range lines, Range along, const Visitor& visit) const {
    constexpr std::int64_t most_beside = 256;  // so that what they name stays in the cache
    const Steps next_place{elements_.strides[dim_], 0, index_.strides[dim_]};
    const Steps next_line{nest_.inner_stride(0), nest_.inner_stride(1), nest_.inner_stride(2)};
    Cursor cursor;
    cursor.seek(nest_, lines.begin);
    for (std::int64_t at = lines.begin; at < lines.end;) {
      std::int64_t beside = std::min(lines.end - at, cursor.row_left(nest_));
      if (next_line[2] != 0) beside = std::min(beside, most_beside);
      const bool across = beside > 1 && std::abs(next_line[0]) <= std::abs(next_place[0]);
      const std::int64_t in_line = along.end - along.begin;
      const std::int64_t runs = across ? in_line : beside, n = across ? beside : in_line;
      const Steps &step = across ? next_line : next_place, &next = across ? next_place : next_line;
      T* element = elements_.as<T>() + cursor.offset[0] + along.begin * next_place[0];
      T* line = places_.as<T>() + cursor.offset[1];
      const auto* index =
          index_.as<const std::int64_t>() + cursor.offset[2] + along.begin * next_place[2];
      for (std::int64_t i = 0; i < runs; ++i)
        visit(Run<T>{element + i * next[0], step[0]}, Run<T>{line + i * next[1], step[1]},
              IndexRun{index + i * next[2], step[2]}, n);
      cursor.advance(nest_, beside);
      at += beside;
    }
  }

 private:
  using Steps = std::array<std::int64_t, 3>;

  const ArrayView &elements_, &places_, &index_;
  int dim_;
  LoopNest nest_;
};

/// The grain of a loop over so many elements a turn.
std::int64_t grain_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, parallel_grain / elements);
}

/// Copies elements that lie together: few of them without a call.
template <class T>
void copy_row(T* to, const T* from, std::int64_t n) {
  constexpr std::int64_t few = 128 / sizeof(T), lanes = 16 / sizeof(T);
  if (n > few) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) std::memcpy(to + i, from + i, 16);
  for (; i < n; ++i) to[i] = from[i];
}

template <class T>
void gather_run(Run<T> to, Run<T> from, IndexRun index, const Places& places, std::int64_t n) {
  if (index.stride == 0) {
    const T* const first = from.data + places.offset(index[0]);
    if (to.stride == 1 && from.stride == 1) return copy_row(to.data, first, n);
    return copy_elements(sizeof(T), to.data, to.stride, first, from.stride, n);
  }
  for (std::int64_t i = 0; i < n; ++i) to[i] = (&from[i])[places.offset(index[i])];
}

template <class T>
void gather_elements(const kernels::GatherArguments& a) {
  const Places places{"gather or index_select", a.in.shape[a.dim], a.in.strides[a.dim]};
  const IndexedLines lines(a.out, a.in, a.index, a.dim);
  const auto gather = [&](Range of_lines, Range along) {
    lines.for_each_run<T>(of_lines, along, [&](Run<T> to, Run<T> from, IndexRun index, auto n) {
      gather_run(to, from, index, places, n);
    });
  };
  const std::int64_t count = lines.count(), length = lines.length();
  if (count >= length)
    parallel_for(count, grain_of(length), [&](std::int64_t begin, std::int64_t end) {
      gather({begin, end}, {0, length});
    });
  else
    parallel_for(length, grain_of(count), [&](std::int64_t begin, std::int64_t end) {
      gather({0, count}, {begin, end});
    });
}

template <class T>
void scatter_run(Run<T> to, Run<T> from, IndexRun index, const Places& places, std::int64_t n) {
  if (index.stride == 0 && to.stride != 0)  // else they meet at one place
    return copy_elements(sizeof(T), to.data + places.offset(index[0]), to.stride, from.data,
                         from.stride, n);
  for (std::int64_t i = 0; i < n; ++i) (&to[i])[places.offset(index[i])] = from[i];
}

template <class T>
void scatter_add_run(Run<T> to, Run<T> from, IndexRun index, const Places& places, std::int64_t n) {
  const auto add = [](T& sum, T term) { sum = static_cast<T>(widen(sum) + widen(term)); };
  if (index.stride != 0) {
    for (std::int64_t i = 0; i < n; ++i) add((&to[i])[places.offset(index[i])], from[i]);
    return;
  }
  to.data += places.offset(index[0]);
  if (is_accumulate_type(dtype_of<T>) && to.stride == 1 && from.stride == 1)
    return loops().reduce_columns(accumulate_of(dtype_of<T>), ReduceOp::sum)(to.data, from.data, 0,
                                                                             1, n);
  for (std::int64_t i = 0; i < n; ++i) add(to[i], from[i]);
}

/// What meets at one element lies in one line, and goes there in its order.
template <class T, class Arguments, class VisitRun>
void scatter_elements(std::string_view op, const Arguments& a, const VisitRun& visit_run) {
  const Places places{op, a.out.shape[a.dim], a.out.strides[a.dim]};
  const IndexedLines lines(a.in, a.out, a.index, a.dim);
  const std::int64_t length = lines.length();
  parallel_for(lines.count(), grain_of(length), [&](std::int64_t begin, std::int64_t end) {
    lines.for_each_run<T>({begin, end}, {0, length},
                          [&](Run<T> from, Run<T> to, IndexRun index, auto n) {
                            visit_run(to, from, index, places, n);
                          });
  });
}

/// Elements that are only moved: `visit` gets a value of an unsigned integer of their size.
template <class Visit>
void dispatch_size(DType dtype, const Visit& visit) {
  switch (lockstep::size_of(dtype)) {
    case 1: return visit(std::uint8_t{});
    case 2: return visit(std::uint16_t{});
    case 4: return visit(std::uint32_t{});
    default: return visit(std::uint64_t{});
  }
}

}  // namespace

void index::gather(const kernels::GatherArguments& arguments, StreamRef) {
  if (arguments.index.numel() == 0) return;
  dispatch_size(arguments.out.dtype,
                [&](auto element) { gather_elements<decltype(element)>(arguments); });
}

void index::scatter(const kernels::ScatterArguments& arguments, StreamRef) {
  if (arguments.index.numel() == 0) return;
  dispatch_size(arguments.out.dtype, [&](auto element) {
    using T = decltype(element);
    scatter_elements<T>("scatter", arguments, scatter_run<T>);
  });
}

void index::scatter_add(const kernels::ScatterAddArguments& arguments, StreamRef) {
  if (arguments.index.numel() == 0) return;
  dispatch_numeric(arguments.out.dtype, "scatter_add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    scatter_elements<T>(arguments.op, arguments, scatter_add_run<T>);
  });
}

}  // namespace lockstep::cpu_kernels
