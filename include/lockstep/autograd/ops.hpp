#pragma once

/// @file
/// All differentiable ops.

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/einsum.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/recurrent.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/sampling.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/ops/sort.hpp"
#include "lockstep/autograd/ops/spatial.hpp"
