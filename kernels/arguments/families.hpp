#pragma once

#include "arguments/attention.hpp"
#include "arguments/batch_norm.hpp"
#include "arguments/convolution.hpp"
#include "arguments/cross_entropy.hpp"
#include "arguments/elementwise.hpp"
#include "arguments/embedding.hpp"
#include "arguments/gemm.hpp"
#include "arguments/index.hpp"
#include "arguments/interpolation.hpp"
#include "arguments/multi_tensor.hpp"
#include "arguments/norm.hpp"
#include "arguments/order.hpp"
#include "arguments/pooling.hpp"
#include "arguments/random.hpp"
#include "arguments/recurrent.hpp"
#include "arguments/reduction.hpp"
#include "arguments/rotary.hpp"
#include "arguments/softmax.hpp"

/// @file
/// All kernel families: FAMILY(name, Table), the table in lockstep::kernels.
/// A backend's members, its check for gaps, and the functions that make its tables follow from this
/// list.

#define LOCKSTEP_KERNEL_FAMILIES(FAMILY)      \
  FAMILY(elementwise, ElementwiseKernels)     \
  FAMILY(random, RandomKernels)               \
  FAMILY(reduction, ReductionKernels)         \
  FAMILY(order, OrderKernels)                 \
  FAMILY(index, IndexKernels)                 \
  FAMILY(multi_tensor, MultiTensorKernels)    \
  FAMILY(softmax, SoftmaxKernels)             \
  FAMILY(cross_entropy, CrossEntropyKernels)  \
  FAMILY(norm, NormKernels)                   \
  FAMILY(embedding, EmbeddingKernels)         \
  FAMILY(rotary, RotaryKernels)               \
  FAMILY(recurrent, RecurrentKernels)         \
  FAMILY(interpolation, InterpolationKernels) \
  FAMILY(gemm, GemmKernels)                   \
  FAMILY(convolution, ConvolutionKernels)     \
  FAMILY(pooling, PoolingKernels)             \
  FAMILY(batch_norm, BatchNormKernels)        \
  FAMILY(attention, AttentionKernels)
