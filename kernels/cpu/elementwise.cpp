#include "arguments/elementwise.hpp"

#include <array>

#include "cpu/tiles.hpp"
#include "functional/checks.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

template <class Loop>
Loop require(Loop loop, std::string_view op, DType dtype) {
  LOCKSTEP_CHECK(loop, Unsupported, op, ": dtype ", dtype, " is not offered on device cpu",
                 functional::advice_of(dtype));
  return loop;
}

/// Runs `loop(pointers, n)` over views of one accumulation type, first `outputs`, then inputs.
template <std::size_t count, class Loop>
void run_any(const std::array<const ArrayView*, count>& views, const Loop& loop,
             std::size_t outputs = 1) {
  const ArrayView& out = *views[0];
  bool plain = true;
  const std::int64_t n = contiguous_count(out);
  for (const ArrayView* view : views)
    plain = plain && is_accumulate_type(view->dtype) && contiguous_count(*view) == n;
  if (plain && n >= 0 && n <= parallel_grain) {  // the small call: nothing but the loop
    std::array<void*, count> pointers;
    for (std::size_t k = 0; k < count; ++k) pointers[k] = views[k]->data;
    if (n > 0) loop(pointers.data(), n);
    return;
  }
  std::array<TileOperand, count> operands;
  for (std::size_t k = 0; k < count; ++k)
    operands[k] = k < outputs ? TileOperand::output(*views[k]) : TileOperand::input(*views[k]);
  const auto nest = [&]<std::size_t... k>(std::index_sequence<k...>) {
    return make_loop_nest(out.shape, {&views[k]->strides...});
  }
  (std::make_index_sequence<count>{});
  run_tiled(nest, operands, loop);
}

/// The same over views of one dtype.
template <std::size_t count, class Loop>
void run(const std::array<const ArrayView*, count>& views, std::string_view op, const Loop& loop,
         std::size_t outputs = 1) {
  for (const ArrayView* view : views) functional::check_same_dtype(op, *views[0], *view);
  run_any(views, loop, outputs);
}

/// The gradient of one operand of an op that saves nothing: of the first, or of the second.
void unsaved_gradient(const kernels::BinaryBackwardArguments& a, BinaryBackwardLoop loop,
                      bool first) {
  const ArrayView& gradient = first ? a.da : a.db;
  if (!gradient) return;
  run(std::array{&gradient, &a.dout}, traits(a.op).name, [&](void* const* p, std::int64_t n) {
    loop(first ? p[0] : nullptr, first ? nullptr : p[0], p[1], nullptr, nullptr, n, a.constants);
  });
}

}  // namespace

void elementwise::unary(const kernels::UnaryArguments& a, StreamRef) {
  const auto name = traits(a.op).name;
  const auto loop =
      require(a.y.dtype == DType::boolean ? nullptr : loops().unary(accumulate_of(a.y.dtype), a.op),
              name, a.y.dtype);
  functional::check_whole_constants(name, a.y.dtype, a.constants);
  run(std::array{&a.y, &a.x}, name,
      [&](void* const* p, std::int64_t n) { loop(p[0], p[1], n, a.constants); });
}

void elementwise::unary_backward(const kernels::UnaryBackwardArguments& a, StreamRef) {
  const auto& line = traits(a.op);
  const auto loop =
      require(loops().unary_backward(accumulate_of(a.dx.dtype), a.op), line.name, a.dx.dtype);
  if (line.saves == Saves::nothing) {
    run(std::array{&a.dx, &a.dy}, line.name,
        [&](void* const* p, std::int64_t n) { loop(p[0], p[1], nullptr, n, a.constants); });
  } else {
    LOCKSTEP_CHECK(a.saved, InvalidArgument, line.name, ": the saved operand is absent");
    run(std::array{&a.dx, &a.dy, &a.saved}, line.name,
        [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], n, a.constants); });
  }
}

void elementwise::binary(const kernels::BinaryArguments& a, StreamRef) {
  const auto name = traits(a.op).name;
  const auto loop =
      a.out.dtype == DType::boolean ? nullptr : loops().binary(accumulate_of(a.out.dtype), a.op);
  require(loop, name, a.out.dtype);
  functional::check_whole_constants(name, a.out.dtype, a.constants);
  const std::array views{&a.out, &a.a, &a.b};
  const auto body = [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], n, a.constants); };
  functional::is_mixed_sum(a.op, a.out, a.a, a.b) ? run_any(views, body) : run(views, name, body);
}

void elementwise::binary_backward(const kernels::BinaryBackwardArguments& a, StreamRef) {
  const auto& line = traits(a.op);
  const auto loop =
      require(loops().binary_backward(accumulate_of(a.dout.dtype), a.op), line.name, a.dout.dtype);
  if (line.saves == Saves::nothing) {
    unsaved_gradient(a, loop, true);
    unsaved_gradient(a, loop, false);
    return;
  }
  if (!a.da && !a.db) return;
  LOCKSTEP_CHECK(a.a && a.b, InvalidArgument, line.name, ": the saved operands are absent");
  if (a.da && a.db)  // in one pass
    run(
        std::array{&a.da, &a.db, &a.dout, &a.a, &a.b}, line.name,
        [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], p[3], p[4], n, a.constants); },
        2);
  else if (a.da)
    run(std::array{&a.da, &a.dout, &a.a, &a.b}, line.name, [&](void* const* p, std::int64_t n) {
      loop(p[0], nullptr, p[1], p[2], p[3], n, a.constants);
    });
  else if (a.db)
    run(std::array{&a.db, &a.dout, &a.a, &a.b}, line.name, [&](void* const* p, std::int64_t n) {
      loop(nullptr, p[0], p[1], p[2], p[3], n, a.constants);
    });
}

void elementwise::compare(const kernels::CompareArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &a = arguments.a, &b = arguments.b;
  const auto name = traits(arguments.op).name;
  LOCKSTEP_CHECK(out.dtype == DType::boolean && a.dtype == b.dtype, InvalidArgument, name,
                 ": needs operands of one dtype and a bool result, got ", a.dtype, ", ", b.dtype,
                 " and ", out.dtype);
  const bool of_bytes = size_of(a.dtype) == 1;
  const auto loop = of_bytes ? loops().compare_bytes[static_cast<std::size_t>(arguments.op)]
                             : loops().compare(accumulate_of(a.dtype), arguments.op);
  const auto operand = of_bytes ? TileOperand::raw_input : TileOperand::input;
  const std::array operands{TileOperand::raw_output(out), operand(a), operand(b)};
  const auto nest = make_loop_nest(out.shape, {&out.strides, &a.strides, &b.strides});
  run_tiled(nest, operands, [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], n); });
}

void elementwise::where(const kernels::WhereArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &condition = arguments.condition, &a = arguments.a,
                  &b = arguments.b;
  LOCKSTEP_CHECK(condition.dtype == DType::boolean && a.dtype == out.dtype && b.dtype == out.dtype,
                 InvalidArgument, "where: needs a bool condition and one dtype, got ",
                 condition.dtype, ", ", a.dtype, ", ", b.dtype, " and ", out.dtype);
  const std::size_t size = size_of(out.dtype);
  const auto loop = loops().where[size == 8 ? 3 : size / 2];
  const std::array operands{TileOperand::raw_output(out), TileOperand::raw_input(condition),
                            TileOperand::raw_input(a), TileOperand::raw_input(b)};
  const auto nest =
      make_loop_nest(out.shape, {&out.strides, &condition.strides, &a.strides, &b.strides});
  run_tiled(nest, operands,
            [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], p[3], n); });
}

}  // namespace lockstep::cpu_kernels
