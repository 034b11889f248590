#include "arguments/random.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "cpu/tiles.hpp"
#include "functional/uniform_bound.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

RandomArguments arguments(double a, double b, PhiloxState random, std::int64_t first) {
  return {.a = a, .b = b, .state = random, .first = first};
}

template <class T>
void limit(T* tile, std::int64_t n, T most) {
  for (std::int64_t i = 0; i < n; ++i) tile[i] = tile[i] < most ? tile[i] : most;
}

/// Limits a tile to `most`; a tile is of the accumulation type.
void limit(Accumulate type, void* tile, std::int64_t n, double most) {
  if (type == Accumulate::f64)
    limit(static_cast<double*>(tile), n, most);
  else
    limit(static_cast<float*>(tile), n, static_cast<float>(most));
}

constexpr double no_limit = std::numeric_limits<double>::infinity();

/// Fills a contiguous array tile by tile. Tiles begin at multiples of 4, as random blocks do.
void draw(const ArrayView& out, std::string_view op, double a, double b, PhiloxState random,
          const LoopTable<DrawLoop, 1>& table, double most = no_limit) {
  const DrawLoop loop = table(accumulate_of(out.dtype), 0);
  LOCKSTEP_CHECK(is_floating(out.dtype) && loop, Unsupported, op, ": dtype ", out.dtype,
                 " is not a floating type");
  LOCKSTEP_CHECK(contiguous_count(out) >= 0, InvalidArgument, op, " needs a contiguous array");
  const StoreLoop store = loops().store(accumulate_of(out.dtype), out.dtype);
  const auto size = static_cast<std::int64_t>(lockstep::size_of(out.dtype));
  const std::int64_t total = out.numel(), tiles = (total + tile_elements - 1) / tile_elements;
  parallel_for(tiles, 8, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::array<double, tile_elements> tile;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t first = t * tile_elements, n = std::min(tile_elements, total - first);
      loop(tile.data(), n, arguments(a, b, random, first));
      if (most < no_limit) limit(accumulate_of(out.dtype), tile.data(), n, most);
      store(out.as<char>() + first * size, 1, tile.data(), n);
    }
  });
}

}  // namespace

void random::uniform(const kernels::UniformArguments& a, StreamRef) {
  draw(a.out, "uniform", a.low, a.high, a.random.get(), loops().uniform,
       functional::last_of_uniform(a.low, a.high, a.out.dtype));
}

void random::normal(const kernels::NormalArguments& a, StreamRef) {
  draw(a.out, "normal", a.mean, a.deviation, a.random.get(), loops().normal);
}

void random::dropout(const kernels::DropoutArguments& a, StreamRef) {
  const ArrayView &out = a.out, &x = a.x;
  const double p = a.p;
  const PhiloxState random = a.random.get();
  LOCKSTEP_CHECK(p >= 0 && p <= 1, InvalidArgument, "dropout: p is ", p, ", not in [0, 1]");
  LOCKSTEP_CHECK(is_floating(x.dtype) && x.dtype == out.dtype, Unsupported, "dropout: dtypes ",
                 x.dtype, " and ", out.dtype, " are not one floating type");
  const DropoutLoop loop = loops().dropout(accumulate_of(x.dtype), 0);
  // The order of dimensions stays, because it numbers the random words.
  const LoopNest nest = make_loop_nest(out.shape, {&out.strides, &x.strides}, false);
  const std::array operands{TileOperand::output(out), TileOperand::input(x)};
  run_tiled_at(nest, operands, [&](void* const* pointers, std::int64_t at, std::int64_t n) {
    loop(pointers[0], pointers[1], n, arguments(p, p < 1 ? 1 / (1 - p) : 0, random, at));
  });
}

void random::set_place(const kernels::SetPlaceArguments& a, StreamRef) { *a.memory = a.place; }

}  // namespace lockstep::cpu_kernels
