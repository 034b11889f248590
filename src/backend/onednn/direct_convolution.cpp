#include "backend/onednn/direct_convolution.hpp"

#include "backend/onednn/families.hpp"
#include "backend/onednn/library.hpp"
#include "lockstep/core/thread_kept.hpp"

namespace lockstep::backend {
namespace {

using dnnl::memory;
using kernels::ConvGeometry;

/// The geometry as oneDNN takes it.
struct Steps {
  memory::dims stride, dilation, before, after;

  Steps(const ConvGeometry& geometry, const ArrayView& x, const ArrayView& w, const ArrayView& y) {
    for (int d = 0; d < 2; ++d) {
      const auto i = static_cast<std::size_t>(d);
      stride.push_back(geometry.stride[i]);
      dilation.push_back(geometry.dilation[i] - 1);  // oneDNN counts the gaps
      before.push_back(geometry.padding[i]);
      const std::int64_t reach = geometry.dilation[i] * (w.shape[2 + d] - 1) + 1;
      after.push_back((y.shape[2 + d] - 1) * geometry.stride[i] + reach - x.shape[2 + d] -
                      geometry.padding[i]);
    }
  }
};

constexpr auto direct = dnnl::algorithm::convolution_direct;
constexpr auto winograd = dnnl::algorithm::convolution_winograd;
constexpr std::int64_t least_winograd_tiles = 32;

/// True where Winograd's filtering in tiles of 4 x 4, with a quarter of the multiplications
/// (Lavin and Gray, 2016), makes up for the copies into its memory order and back.
bool winograd_pays(const ConvolutionCall& call) {
  const auto& [stride, padding, dilation, groups] = call.geometry;
  const kernels::Pair ones{1, 1};
  const Dims &x = call.x.shape, &w = call.weight.shape, &y = call.y.shape;
  const std::int64_t tiles = y[0] * ((y[2] + 3) / 4) * ((y[3] + 3) / 4);
  return call.x.dtype == DType::f32 && call.weight.dtype == DType::f32 && groups == 1 &&
         w[2] == 3 && w[3] == 3 && stride == ones && padding == ones && dilation == ones &&
         x[1] >= 32 && w[0] >= 32 && tiles >= least_winograd_tiles;
}

/// Channels-last images stay so, with no copies; for contiguous ones, and for tiles of Winograd's,
/// the primitive chooses.
memory::desc image(const ArrayView& view, dnnl::algorithm algorithm) {
  const bool stays = algorithm == direct && dnn::is_channels_last(view);
  return stays ? dnn::describe(view) : dnn::describe_any(view);
}

/// False where oneDNN's bf16 code for weight gradients is wrong: with dilation, and with steps over
/// images so narrow that the result has one or two columns (versions 2.6 and 3.2, with AMX and
/// without; docs/adr/0010-trusted-amx.md).
bool bf16_weight_gradient_is_right(const ConvolutionCall& call) {
  const auto& [stride, padding, dilation, groups] = call.geometry;
  const bool plain = dilation[0] == 1 && dilation[1] == 1;
  return plain && ((stride[0] == 1 && stride[1] == 1) || call.y.shape[3] > 2);
}

/// A primitive with its three operands, in the order in which it reads and writes them.
struct Plan {
  dnn::Runnable runnable;
  dnn::Operand x, weight, y;
  /// Weight gradients in the primitive's order, added to the caller's.
  dnn::Runnable add_weight;
  std::size_t weight_bytes = 0;
};

dnnl::convolution_forward::primitive_desc forward_desc(const ConvolutionCall& call,
                                                       dnnl::algorithm algorithm) {
  const Steps steps(call.geometry, call.x, call.weight, call.y);
  const auto x = image(call.x, algorithm), y = image(call.y, algorithm);
  const auto w = dnn::describe_any(call.grouped_weight());
  const auto kind = dnnl::prop_kind::forward_training;
  if (!call.bias)
    return dnn::make<dnnl::convolution_forward>(dnn::attributes(), kind, algorithm, x, w, y,
                                                steps.stride, steps.dilation, steps.before,
                                                steps.after);
  return dnn::make<dnnl::convolution_forward>(dnn::attributes(), kind, algorithm, x, w,
                                              dnn::describe(call.bias), y, steps.stride,
                                              steps.dilation, steps.before, steps.after);
}

/// A plan of a call, empty where oneDNN has no code for it.
/// @param make makes one of an algorithm.
template <class Make>
Plan make_plan(const ConvolutionCall& call, Make&& make) {
  if (winograd_pays(call)) {
    try {
      return make(winograd);
    } catch (const dnnl::error& error) {  // a processor without AVX-512, a version without it
      if (error.status != dnnl_unimplemented) throw;
    }
  }
  return dnn::make_or_empty("convolution", {&call.x, &call.weight, &call.y, &call.bias},
                            [&] { return make(direct); });
}

// Slots of the working memory.
constexpr int x_slot = 0, weight_slot = 1, y_slot = 2;

Plan forward_plan(const ConvolutionCall& call) {
  return make_plan(call, [&](dnnl::algorithm algorithm) {
    const auto desc = forward_desc(call, algorithm);
    Plan plan;
    plan.runnable = {dnnl::convolution_forward(desc), desc.scratchpad_desc()};
    plan.runnable.add(DNNL_ARG_SRC, desc.src_desc());
    plan.runnable.add(DNNL_ARG_WEIGHTS, desc.weights_desc());
    plan.runnable.add(DNNL_ARG_DST, desc.dst_desc());
    if (call.bias) plan.runnable.add(DNNL_ARG_BIAS, dnn::describe(call.bias));
    plan.x = {dnn::describe(call.x), desc.src_desc(), x_slot};
    plan.weight = {dnn::describe(call.grouped_weight()), desc.weights_desc(), weight_slot};
    plan.y = {dnn::describe(call.y), desc.dst_desc(), y_slot};
    return plan;
  });
}

Plan backward_data_plan(const ConvolutionCall& call) {
  return make_plan(call, [&](dnnl::algorithm algorithm) {
    const Steps steps(call.geometry, call.x, call.weight, call.y);
    const auto desc = dnn::make_backward<dnnl::convolution_backward_data>(
        dnn::attributes(), forward_desc(call, algorithm), algorithm, image(call.x, algorithm),
        dnn::describe_any(call.grouped_weight()), image(call.y, algorithm), steps.stride,
        steps.dilation, steps.before, steps.after);
    Plan plan;
    plan.runnable = {dnnl::convolution_backward_data(desc), desc.scratchpad_desc()};
    plan.runnable.add(DNNL_ARG_DIFF_SRC, desc.diff_src_desc());
    plan.runnable.add(DNNL_ARG_WEIGHTS, desc.weights_desc());
    plan.runnable.add(DNNL_ARG_DIFF_DST, desc.diff_dst_desc());
    plan.x = {dnn::describe(call.x), desc.diff_src_desc(), x_slot};
    plan.weight = {dnn::describe(call.grouped_weight()), desc.weights_desc(), weight_slot};
    plan.y = {dnn::describe(call.y), desc.diff_dst_desc(), y_slot};
    return plan;
  });
}

Plan backward_weight_plan(const ConvolutionCall& call) {
  return make_plan(call, [&](dnnl::algorithm algorithm) {
    const Steps steps(call.geometry, call.x, call.weight, call.y);
    ConvolutionCall computed = call;
    if (!bf16_weight_gradient_is_right(call))  // in f32: the operands are converted on their way
      for (ArrayView* view : {&computed.x, &computed.weight, &computed.y}) view->dtype = DType::f32;
    ConvolutionCall hint = computed;
    hint.weight.dtype = computed.x.dtype;
    const auto desc = dnn::make_backward<dnnl::convolution_backward_weights>(
        dnn::attributes(), forward_desc(hint, algorithm), algorithm, image(computed.x, algorithm),
        dnn::describe_any(computed.grouped_weight()), image(computed.y, algorithm), steps.stride,
        steps.dilation, steps.before, steps.after);
    const auto chosen = desc.diff_weights_desc(), user = dnn::describe(call.grouped_weight());
    Plan plan;
    plan.runnable = {dnnl::convolution_backward_weights(desc), desc.scratchpad_desc()};
    plan.runnable.add(DNNL_ARG_SRC, desc.src_desc());
    plan.runnable.add(DNNL_ARG_DIFF_WEIGHTS, chosen);
    plan.runnable.add(DNNL_ARG_DIFF_DST, desc.diff_dst_desc());
    plan.x = {dnn::describe(call.x), desc.src_desc(), x_slot};
    plan.weight = {user, chosen, weight_slot};
    plan.y = {dnn::describe(call.y), desc.diff_dst_desc(), y_slot};
    dnnl::primitive_attr add = dnn::attributes();
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    add.set_post_ops(sum);
    const dnnl::reorder::primitive_desc adding(dnn::engine(), chosen, dnn::engine(), user, add);
    plan.add_weight = {dnnl::reorder(adding), adding.scratchpad_desc()};
    plan.add_weight.add(DNNL_ARG_FROM, chosen);
    plan.add_weight.add(DNNL_ARG_TO, user);
    plan.weight_bytes = chosen.get_size();
    return plan;
  });
}

/// The plan of a call, or null where the `cpu` backend has to run it.
template <class Make>
Plan* find_plan(ConvolutionCall& call, std::int64_t operation, Make&& make) {
  static thread_local detail::KeptByThread<dnn::PrimitiveCache<Plan>> cache;
  if (!call.normalise()) return nullptr;
  Plan& plan = cache.get().get(call.key(operation), [&] { return make(call); });
  return plan.runnable ? &plan : nullptr;
}

}  // namespace

bool ConvolutionCall::normalise() {
  if (x.rank() != 4 || weight.rank() != 4 || y.rank() != 4) return false;
  const bool sums_f32 = writes_weight && weight.dtype == DType::f32;
  if (!dnn::trains(x.dtype) || x.dtype != y.dtype) return false;
  if (x.dtype != weight.dtype && !sums_f32) return false;
  if (bias && (!dnn::trains(bias.dtype) || bias.strides[0] != 1)) return false;
  if (x.numel() == 0 || y.numel() == 0 || weight.numel() == 0) return false;
  const bool fit = geometry.groups >= 1 && x.shape[1] == geometry.groups * weight.shape[1] &&
                   weight.shape[0] % geometry.groups == 0 && y.shape[1] == weight.shape[0] &&
                   x.shape[0] == y.shape[0];
  return fit && dnn::normalise_image(x) && dnn::normalise_image(weight) &&
         dnn::normalise_image(y) && outputs_fit();
}
dnn::Key ConvolutionCall::key(std::int64_t operation) const {
  dnn::Key result;
  result.add(operation);
  for (const ArrayView* view : {&x, &weight, &y, &bias}) result.add(*view);
  for (const kernels::Pair& pair : {geometry.stride, geometry.padding, geometry.dilation})
    for (const std::int64_t value : pair) result.add(value);
  result.add(geometry.groups);
  return result;
}
bool ConvolutionCall::is_of_points() const {
  return geometry.groups == 1 && weight.shape[2] == 1 && weight.shape[3] == 1;
}
bool ConvolutionCall::is_of_all_points() const {
  return is_of_points() && geometry.stride == kernels::Pair{1, 1} &&
         geometry.padding == kernels::Pair{0, 0};
}
ArrayView ConvolutionCall::grouped_weight() const {
  ArrayView w = weight;
  if (geometry.groups == 1) return w;
  const std::int64_t per_group = w.shape[0] / geometry.groups;
  w.shape[0] = per_group;
  w.shape.insert(0, geometry.groups);
  w.strides.insert(0, per_group * w.strides[0]);
  return w;
}

bool ConvolutionCall::outputs_fit() const {
  for (int d = 0; d < 2; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const std::int64_t room = x.shape[2 + d] + 2 * geometry.padding[i] -
                              geometry.dilation[i] * (weight.shape[2 + d] - 1) - 1;
    if (room < 0 || y.shape[2 + d] != room / geometry.stride[i] + 1) return false;
  }
  return true;
}

void direct_forward(const kernels::ConvolutionArguments& a, StreamRef stream) {
  ConvolutionCall call{a.x, a.weight, a.y, a.bias, a.geometry};
  Plan* plan = find_plan(call, 0, forward_plan);
  if (!plan) return cpu().convolution.forward(a, stream);
  void* const in = plan->x.bring_in(a.x.data);
  void* const taps = plan->weight.bring_in(a.weight.data);
  if (a.bias)
    plan->runnable.run({in, taps, plan->y.place(a.y.data), a.bias.data});
  else
    plan->runnable.run({in, taps, plan->y.place(a.y.data)});
  plan->y.bring_out(a.y.data);
}

void direct_backward_data(const kernels::ConvolutionDataGradientArguments& a, StreamRef stream) {
  ConvolutionCall call{a.dx, a.weight, a.dy, {}, a.geometry};
  Plan* plan = find_plan(call, 1, backward_data_plan);
  if (!plan) return cpu().convolution.backward_data(a, stream);
  void* const taps = plan->weight.bring_in(a.weight.data);
  void* const gradient = plan->y.bring_in(a.dy.data);
  plan->runnable.run({plan->x.place(a.dx.data), taps, gradient});
  plan->x.bring_out(a.dx.data);
}

void direct_backward_weight(const kernels::ConvolutionWeightGradientArguments& a,
                            StreamRef stream) {
  ConvolutionCall call{a.x, a.dweight, a.dy, {}, a.geometry, true};
  Plan* plan = find_plan(call, 2, backward_weight_plan);
  if (!plan) return cpu().convolution.backward_weight(a, stream);
  void* const in = plan->x.bring_in(a.x.data);
  void* const gradient = plan->y.bring_in(a.dy.data);
  void* const sums = a.accumulate ? dnn::working_memory(weight_slot, plan->weight_bytes)
                                  : plan->weight.place(a.dweight.data);
  plan->runnable.run({in, sums, gradient});
  if (a.accumulate)
    plan->add_weight.run({sums, a.dweight.data});
  else
    plan->weight.bring_out(a.dweight.data);
}

}  // namespace lockstep::backend
