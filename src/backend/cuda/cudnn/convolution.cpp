#include "backend/cuda/cudnn/target.hpp"
#include "backend/cuda/cudnn_ops.hpp"
#include "lockstep/core/float32_precision.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::backend::cudnn {
namespace {

enum Uid : std::int64_t { image_uid = 1, weight_uid, result_uid };

/// All arrays of a call have one memory format. Strides of extents of 1 carry no meaning, and an
/// array may fit both formats, but cuDNN reads the format off the strides of each.
ArrayView with_plain_strides(ArrayView view, bool channels_last) {
  view.strides = channels_last ? channels_last_strides(view.shape) : contiguous_strides(view.shape);
  return view;
}

bool is_channels_last(const ConvArrays& arrays) {
  return !(arrays.image.is_contiguous() && arrays.weight.is_contiguous() &&
           arrays.result.is_contiguous());
}

template <class Attributes>
Attributes attributes_of(const ConvGeometry& geometry) {
  const auto list = [](const kernels::Pair& pair) {
    return std::vector<std::int64_t>{pair[0], pair[1]};
  };
  return Attributes()
      .set_padding(list(geometry.padding))
      .set_stride(list(geometry.stride))
      .set_dilation(list(geometry.dilation));
}

Requirements requirements(DType dtype) {
  const bool exact = float32_precision() == Float32Precision::ieee;
  return {.full_precision = dtype == DType::f32 && exact, .deterministic = true};
}

Plan build(ConvDirection direction, const ConvArrays& arrays, const ConvGeometry& geometry,
           const PlanTarget& target) {
  using namespace frontend::graph;
  const DType dtype = arrays.image.dtype;
  auto graph = new_graph(dtype);
  const bool last = is_channels_last(arrays);
  const auto input = [&](const ArrayView& view, Uid uid) {
    return graph->tensor(describe(with_plain_strides(view, last), uid));
  };
  const auto output = [last](const std::shared_ptr<Tensor_attributes>& tensor,
                             const ArrayView& view,
                             Uid uid) { write_to(tensor, with_plain_strides(view, last), uid); };
  switch (direction) {
    case ConvDirection::forward:
      output(graph->conv_fprop(input(arrays.image, image_uid), input(arrays.weight, weight_uid),
                               attributes_of<Conv_fprop_attributes>(geometry)),
             arrays.result, result_uid);
      break;
    case ConvDirection::backward_data:
      output(graph->conv_dgrad(input(arrays.result, result_uid), input(arrays.weight, weight_uid),
                               attributes_of<Conv_dgrad_attributes>(geometry)),
             arrays.image, image_uid);
      break;
    case ConvDirection::backward_weight:
      output(graph->conv_wgrad(input(arrays.result, result_uid), input(arrays.image, image_uid),
                               attributes_of<Conv_wgrad_attributes>(geometry)),
             arrays.weight, weight_uid);
      break;
  }
  return {std::move(graph), requirements(dtype), target};
}

}  // namespace

std::string_view missing() { return {}; }

bool convolution(ConvDirection direction, const ConvArrays& arrays, const ConvGeometry& geometry,
                 StreamRef stream) {
  const CudaDeviceGuard guard(stream.device.index);
  thread_local detail::KeptByThread<std::map<Key, Plan>> plans;
  Key key;
  const Requirements required = requirements(arrays.image.dtype);
  key.add(static_cast<std::int64_t>(direction)).add(stream.device.index);
  key.add(required.full_precision);
  key.add(arrays.image).add(arrays.weight).add(arrays.result);
  for (const kernels::Pair& pair : {geometry.stride, geometry.padding, geometry.dilation})
    key.add(pair[0]).add(pair[1]);
  Plan& plan =
      plan_for(plans.get(), key, [&] { return build(direction, arrays, geometry, stream); });
  if (!plan.supported()) return false;
  plan.run({{image_uid, arrays.image.data},
            {weight_uid, arrays.weight.data},
            {result_uid, arrays.result.data}},
           stream);
  return true;
}

bool has_plan(const GpuDescription& gpu, ConvDirection direction, const ConvArrays& arrays,
              const ConvGeometry& geometry) {
  return build(direction, arrays, geometry, PlanTarget(gpu)).supported();
}

}  // namespace lockstep::backend::cudnn
