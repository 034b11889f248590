#include "lockstep/parallel/mean_metric.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::parallel {
namespace {

double quotient(const Tensor& sums) {
  const std::vector<double> both = sums.to_vector<double>();
  return both[0] / both[1];
}

}  // namespace

MeanMetric::MeanMetric(Device device, std::string name)
    : sums_(zeros({2}, {.dtype = DType::f64, .device = device})), name_(std::move(name)) {}

void MeanMetric::add(const Tensor& sum, double weight) {
  LOCKSTEP_CHECK(sum.numel() == 1 && sum.device() == sums_.device(), InvalidArgument,
                 "MeanMetric: a sum of shape ", sum.shape(), " on ", sum.device(),
                 "; it must be one element on ", sums_.device());
  LOCKSTEP_CHECK(std::isfinite(weight) && weight >= 0, InvalidArgument, "MeanMetric: a weight of ",
                 weight, "; it must be a number from 0 on");
  if (weight == 0) return;
  const NoGradGuard no_recording;
  sums_[0].add_(sum.detach().reshape({}).to(DType::f64));
  sums_[1].add_(weight);
}

double MeanMetric::value() const { return quotient(sums_); }

double MeanMetric::value(Communicator& group) const {
  const NoGradGuard no_recording;
  const std::string label = name_.empty() ? "MeanMetric" : "MeanMetric " + name_;
  return quotient(all_reduce_async(sums_, group, comm::ReduceOp::sum(), label).wait());
}

void MeanMetric::reset() { sums_.zero_(); }

}  // namespace lockstep::parallel
