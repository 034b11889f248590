#include "lockstep/nn/construction.hpp"

#include <algorithm>

namespace lockstep::nn {
namespace {

thread_local Construction* current = nullptr;

bool would_be_trained(const Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Tensor& parameter) { return parameter.requires_grad(); });
}

}  // namespace

Construction::Construction() noexcept : outer_(std::exchange(current, this)) {}
Construction::~Construction() { current = outer_; }

void Construction::note(IntrusivePtr<Module> module) {
  noted_.push_back({std::move(module), 0});
  noted_.back().handles = noted_.back().module->use_count();
}

void Construction::finish(const IntrusivePtr<Module>& made) {
  for (const Noted& each : noted_)
    LOCKSTEP_CHECK(each.module->use_count() <= each.handles || each.module->parent_ ||
                       !would_be_trained(*each.module),
                   InvalidArgument, type_name(*made), " keeps a ", type_name(*each.module), '(',
                   each.module->describe(),
                   ") that it has not registered, so that it would be neither trained nor saved; "
                   "make the member an nn::Child, or call register_module (or freeze it before)");
  if (outer_) outer_->noted_.push_back({made, 1});
}

}  // namespace lockstep::nn
