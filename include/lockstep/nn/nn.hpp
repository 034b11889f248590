#pragma once

/// @file
/// All of nn: modules, layers, initialisers and functional ops.

#include "lockstep/nn/activation.hpp"
#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/batch_norm.hpp"
#include "lockstep/nn/checkpoint.hpp"
#include "lockstep/nn/conv1d.hpp"
#include "lockstep/nn/conv2d.hpp"
#include "lockstep/nn/conv_transpose2d.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/functional.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/member.hpp"
#include "lockstep/nn/module.hpp"
#include "lockstep/nn/module_dict.hpp"
#include "lockstep/nn/module_list.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/nn/padding.hpp"
#include "lockstep/nn/pooling.hpp"
#include "lockstep/nn/recurrent.hpp"
#include "lockstep/nn/sequential.hpp"
#include "lockstep/nn/transformer.hpp"
#include "lockstep/nn/upsample.hpp"
