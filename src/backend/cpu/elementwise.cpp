#include "backend/elementwise.hpp"

#include <array>

#include "backend/cpu/families.hpp"
#include "cpu/copy.hpp"
#include "cpu/random.hpp"
#include "cpu/tiles.hpp"
#include "functional/checks.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using host::TileOperand;

constexpr std::string_view compare_names[] = {"equal",      "not_equal", "less",
                                              "less_equal", "greater",   "greater_equal"};

template <class Loop>
Loop require(Loop loop, std::string_view op, DType dtype) {
  LOCKSTEP_CHECK(loop, Unsupported, op, ": dtype ", dtype, " is not offered on device cpu");
  return loop;
}

/// Runs `loop(pointers, n)` over views of one dtype, the first an output and the others inputs.
template <std::size_t count, class Loop>
void run(const std::array<const ArrayView*, count>& views, std::string_view op, const Loop& loop) {
  const ArrayView& out = *views[0];
  bool plain = host::is_accumulate_type(out.dtype);
  const std::int64_t n = host::contiguous_count(out);
  for (const ArrayView* view : views) {
    functional::check_same_dtype(op, out, *view);
    plain = plain && host::contiguous_count(*view) == n;
  }
  if (plain && n >= 0 && n <= host::parallel_grain) {  // the small call: nothing but the loop
    std::array<void*, count> pointers;
    for (std::size_t k = 0; k < count; ++k) pointers[k] = views[k]->data;
    if (n > 0) loop(pointers.data(), n);
    return;
  }
  std::array<TileOperand, count> operands;
  operands[0] = TileOperand::output(out);
  for (std::size_t k = 1; k < count; ++k) operands[k] = TileOperand::input(*views[k]);
  const auto nest = [&]<std::size_t... k>(std::index_sequence<k...>) {
    return host::make_nest(out.shape, {&views[k]->strides...});
  }
  (std::make_index_sequence<count>{});
  host::run_tiled(nest, operands, loop);
}

class CpuElementwise final : public Elementwise {
 public:
  void unary(UnaryOp op, const ArrayView& y, const ArrayView& x, OpConstants constants,
             StreamRef) override {
    const auto name = traits(op).name;
    const auto loop = require(host::loops().unary(host::accumulate_of(y.dtype), op), name, y.dtype);
    functional::check_whole_constants(name, y.dtype, constants);
    run(std::array{&y, &x}, name,
        [&](void* const* p, std::int64_t n) { loop(p[0], p[1], n, constants); });
  }

  void unary_backward(UnaryOp op, const ArrayView& dx, const ArrayView& dy, const ArrayView& x,
                      const ArrayView& y, OpConstants constants, StreamRef) override {
    const auto& line = traits(op);
    const auto loop = require(host::loops().unary_backward(host::accumulate_of(dx.dtype), op),
                              line.name, dx.dtype);
    if (line.saves == Saves::nothing) {
      run(std::array{&dx, &dy}, line.name,
          [&](void* const* p, std::int64_t n) { loop(p[0], p[1], nullptr, n, constants); });
    } else {
      const ArrayView& saved = line.saves == Saves::input ? x : y;
      LOCKSTEP_CHECK(saved, InvalidArgument, line.name, ": the saved operand is absent");
      run(std::array{&dx, &dy, &saved}, line.name,
          [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], n, constants); });
    }
  }

  void binary(BinaryOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
              OpConstants constants, StreamRef) override {
    const auto name = traits(op).name;
    const auto loop = out.dtype == DType::boolean
                          ? nullptr
                          : host::loops().binary(host::accumulate_of(out.dtype), op);
    require(loop, name, out.dtype);
    functional::check_whole_constants(name, out.dtype, constants);
    run(std::array{&out, &a, &b}, name,
        [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], n, constants); });
  }

  void binary_backward(BinaryOp op, const ArrayView& da, const ArrayView& db, const ArrayView& dout,
                       const ArrayView& a, const ArrayView& b, OpConstants constants,
                       StreamRef) override {
    const auto type = host::accumulate_of(dout.dtype);
    const auto& table = host::loops();
    if (da) gradient(op, table.binary_backward_a(type, op), da, dout, a, b, constants);
    if (db) gradient(op, table.binary_backward_b(type, op), db, dout, a, b, constants);
  }

  void compare(CompareOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
               StreamRef) override {
    const auto name = compare_names[static_cast<std::size_t>(op)];
    LOCKSTEP_CHECK(out.dtype == DType::boolean && a.dtype == b.dtype, InvalidArgument, name,
                   ": needs operands of one dtype and a bool result, got ", a.dtype, ", ", b.dtype,
                   " and ", out.dtype);
    const auto loop = host::loops().compare(host::accumulate_of(a.dtype), op);
    const std::array operands{TileOperand::raw_output(out), TileOperand::input(a),
                              TileOperand::input(b)};
    const auto nest = host::make_nest(out.shape, {&out.strides, &a.strides, &b.strides});
    host::run_tiled(nest, operands,
                    [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], n); });
  }

  void where(const ArrayView& out, const ArrayView& condition, const ArrayView& a,
             const ArrayView& b, StreamRef) override {
    LOCKSTEP_CHECK(
        condition.dtype == DType::boolean && a.dtype == out.dtype && b.dtype == out.dtype,
        InvalidArgument, "where: needs a bool condition and one dtype, got ", condition.dtype, ", ",
        a.dtype, ", ", b.dtype, " and ", out.dtype);
    const std::size_t size = size_of(out.dtype);
    const auto loop = host::loops().where[size == 8 ? 3 : size / 2];
    const std::array operands{TileOperand::raw_output(out), TileOperand::raw_input(condition),
                              TileOperand::raw_input(a), TileOperand::raw_input(b)};
    const auto nest =
        host::make_nest(out.shape, {&out.strides, &condition.strides, &a.strides, &b.strides});
    host::run_tiled(nest, operands,
                    [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], p[3], n); });
  }

  void copy(const ArrayView& out, const ArrayView& in, StreamRef) override { host::copy(out, in); }

  void fill(const ArrayView& out, double value, StreamRef) override { host::fill(out, value); }

  void arange(const ArrayView& out, double start, double step, StreamRef) override {
    host::arange(out, start, step);
  }

  void triangle(const ArrayView& out, const ArrayView& in, bool upper, std::int64_t diagonal,
                StreamRef) override {
    host::triangle(out, in, upper, diagonal);
  }

  void uniform(const ArrayView& out, double low, double high, PhiloxState random,
               StreamRef) override {
    host::uniform(out, low, high, random);
  }

  void normal(const ArrayView& out, double mean, double deviation, PhiloxState random,
              StreamRef) override {
    host::normal(out, mean, deviation, random);
  }

  void dropout(const ArrayView& out, const ArrayView& x, double p, PhiloxState random,
               StreamRef) override {
    host::dropout(out, x, p, random);
  }

 private:
  static void gradient(BinaryOp op, host::BinaryBackwardLoop loop, const ArrayView& out,
                       const ArrayView& dout, const ArrayView& a, const ArrayView& b,
                       OpConstants constants) {
    const auto& line = traits(op);
    require(loop, line.name, dout.dtype);
    if (line.saves == Saves::nothing) {
      run(std::array{&out, &dout}, line.name, [&](void* const* p, std::int64_t n) {
        loop(p[0], p[1], nullptr, nullptr, n, constants);
      });
    } else {
      LOCKSTEP_CHECK(a && b, InvalidArgument, line.name, ": the saved operands are absent");
      run(std::array{&out, &dout, &a, &b}, line.name,
          [&](void* const* p, std::int64_t n) { loop(p[0], p[1], p[2], p[3], n, constants); });
    }
  }
};

}  // namespace

Elementwise& cpu_elementwise() {
  static CpuElementwise family;
  return family;
}

}  // namespace lockstep::backend
