#include "autograd/ops/common.hpp"
#include "autograd/ops/heads.hpp"
#include "autograd/ops/in_place_call.hpp"
#include "lockstep/autograd/ops/attention.hpp"

namespace lockstep {

LOCKSTEP_OP(rotary_embedding, floating, follow, same)
LOCKSTEP_OP(rotary_embedding_, floating, follow, same)

namespace {

using namespace autograd;

void check_heads(std::string_view op, const Tensor& x) {
  LOCKSTEP_CHECK(x.dim() == 4 && x.size(3) > 0 && x.size(3) % 2 == 0, InvalidArgument, op,
                 ": input of shape ", x.shape(), "; expected [N, H, T, D] with an even D");
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (int i = 1; i <= from.size(); ++i)
    if (from[from.size() - i] != 1 && from[from.size() - i] != to[to.size() - i]) return false;
  return true;
}

/// A table as kernels read it: [N, T, D / 2] in the dtype that they compute in, for x.
Tensor table_for(std::string_view op, const Tensor& x, const Tensor& table) {
  const Shape wanted{x.size(0), 1, x.size(2), x.size(3) / 2};
  check_same_device(op, x, table);
  LOCKSTEP_CHECK(!recording(table), Unsupported, op,
                 ": cos or sin requires a gradient, which this op does not compute; detach() it");
  const bool fits = is_floating(table.dtype()) && table.dim() >= 1 &&
                    table.size(-1) == wanted.back() && broadcasts_to(table.shape(), wanted);
  LOCKSTEP_CHECK(fits, InvalidArgument, op, ": cos or sin of dtype ", table.dtype(), " and shape ",
                 table.shape(), "; expected floating ones, rows of ", wanted.back(),
                 ", that broadcast to ", wanted);
  return no_grad([&] {
    return dense_last(table.to(statistics_dtype(x.dtype()))).expand(wanted).select(1, 0);
  });
}

/// y = x turned, or turned back.
void rotate(const Tensor& y, const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  backend_of(x).rotary.rotate(
      {.y = y.view(), .x = x.view(), .cos = cos.view(), .sin = sin.view(), .inverse = inverse},
      stream_of(x));
}

Tensor rotated(const Tensor& x_in, const Tensor& cos, const Tensor& sin, bool inverse) {
  const Tensor x = no_grad([&] { return dense_last(x_in); });
  Tensor y = empty_heads(x.shape(), x.options());
  rotate(y, x, cos, sin, inverse);
  return y;
}

/// The same, recorded: its gradient is turned the other way.
Tensor recorded_rotation(const OpCall<1>& call, const Tensor& cos, const Tensor& sin,
                         bool inverse) {
  Tensor y = rotated(call[0], cos, sin, inverse);
  if (!call.recording()) return y;
  const auto backward = [cos = SavedTensor(cos), sin = SavedTensor(sin), inverse](
                            const Tensor& dy, InputGradients& inputs) {
    const OpCall back(ops::rotary_embedding, dy);
    inputs.set(0, recorded_rotation(back, cos.get(), sin.get(), !inverse));
  };
  return call.record(std::move(y), Differentiable{backward});
}

}  // namespace

Tensor rotary_embedding(const Tensor& x_in, const Tensor& cos_in, const Tensor& sin_in) {
  const OpCall call(ops::rotary_embedding, x_in);
  const Tensor& x = call[0];
  check_heads(call.name(), x);
  const Tensor cos = table_for(call.name(), x, cos_in), sin = table_for(call.name(), x, sin_in);
  return recorded_rotation(call, cos, sin, false);
}

Tensor& rotary_embedding_(Tensor& x, const Tensor& cos_in, const Tensor& sin_in) {
  const InPlaceCall call(ops::rotary_embedding_, x);
  check_heads(call.name(), x);
  call.check_written_once();
  const auto read = [&](const Tensor& given) {
    const Tensor table = table_for(call.name(), x, given);
    return table.impl().storage == x.impl().storage ? no_grad([&] { return table.clone(); })
                                                    : table;
  };
  const Tensor cos = read(cos_in), sin = read(sin_in);
  if (x.strides().back() != 1) {
    x.copy_(no_grad([&] { return rotated(x, cos, sin, false); }));
    return x;
  }
  call.write();
  rotate(x, x, cos, sin, false);
  return x;
}

}  // namespace lockstep
