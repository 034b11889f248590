#include "lockstep/nn/call.hpp"

#include "autograd/name_place.hpp"

namespace lockstep::nn::detail {

void set_place(Error& error, const Module& module) { autograd::name_place(error, module.path()); }

}  // namespace lockstep::nn::detail
