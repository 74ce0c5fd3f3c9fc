"""The rows of random graphs: what a statement over tensors may be, as text with holes, one line each.

In ``graph_programs.py`` a hole is filled with what fits the tensors that a program has by then; a statement that eager refuses, or whose
numbers rounding decides, is thrown away. So a row needs to be right for some tensors only.

Tensors: ``<T>`` any, ``<F>`` floating point, ``<I>`` integer, ``<B>`` bool, ``<N>`` a number (float or integer), ``<W>`` one that may be written.
A digit wants that many dimensions, ``+`` at least one, ``=`` the shape of the row's first tensor; without one the shape is one that broadcasts with it.
Of the row's first tensor: ``<d>`` a dimension, ``<dd>`` two, ``<dims>`` some, ``<perm>`` an order of all, ``<view>`` a shape with as many elements,
``<wide>`` a shape it expands to, ``<at>`` an index of slices and numbers, ``<shape>`` its shape, ``<index>`` a tensor of places along ``<d>``.
Numbers: ``<i>`` integer, ``<n>`` a count of 1 to 3, ``<x>`` float, ``<u>`` a float in (0, 1), ``<bool>``; ``<dtype>``, ``<float>`` dtypes.
A row that begins with ``~`` rounds in a way of its own (another order of sums, other functions): what is decided by a number's last bit does
not take its result. A row of ``CUTS`` is decided so, and one that begins with ``!``. Means that are asked for are those of finite numbers: what
aten makes of an infinity there depends on the order in which it updates the mean.
"""

from __future__ import annotations

POINTWISE = (
    "<T> + <T>", "<T> - <T>", "<T> * <T>", "<T> * <x>", "<T> + <i>", "<x> - <T>", "<i> * <T>", "<T> / <T>", "<T> / <x>", "-<N>", "<T>.abs()",
    "<T>.neg()", "torch.add(<N>, <N>, alpha=<i>)", "torch.sub(<F>, <F>, alpha=<x>)", "torch.rsub(<F>, <x>)", "torch.maximum(<T>, <T>)",
    "torch.minimum(<T>, <T>)", "torch.where(<B>, <T>, <T>)", "torch.where(<B>, <T>, <x>)", "torch.where(<B>, <i>, <T>)", "torch.relu(<N>)",
    "<N>.clamp(<i>, 2)", "<F>.clamp(min=<x>)", "<N>.clamp(max=<i>)", "torch.clamp(<F>, <F>, <F>)", "torch.clamp(<N>, max=<N>)", "<T>.square()",
    "<F>.reciprocal()", "<F>.abs().sqrt()", "~(<F>.abs() + 0.5).rsqrt()", "<T>.masked_fill(<B>, <i>)", "<F>.nan_to_num()",
    "<F>.nan_to_num(0.5, 1.0, -1.0)", "torch.fmax(<N>, <N>)", "torch.fmin(<N>, <N>)", "torch.copysign(<F>, <F>)",
    "torch.addcmul(<F>, <F>, <F>, value=<x>)", "~torch.addcdiv(<F>, <F>, <F>.abs() + 1, value=<x>)", "~torch.lerp(<F>, <F>, <u>)",
    "~torch.lerp(<F>, <F>, <F>)", "<T>.to(<dtype>)", "<T>.to(<float>)", "<T>.float()", "<I>.double()", "<T>.bool()",
    "torch.threshold(<F>, <x>, <x>)", "F.leaky_relu(<F>, <u>)", "F.hardtanh(<F>)", "F.relu6(<F>)", "F.prelu(<F+>, <F1>)",
    "F.threshold(<F>, <x>, <x>)", "torch.positive(<N>)", "<I> // <i>", "<I> % <i>", "<I> & <I>", "<I> | <i>", "<I> ^ <I>", "torch.bitwise_not(<I>)",
    "<I> << 1", "<I> >> 1", "<I> << <I>.remainder(5)", "<I> >> <I>.remainder(5)", "torch.gcd(<I>, <I>)", "torch.floor_divide(<I>, <i>)",
    "torch.div(<I>, <i>, rounding_mode='trunc')", "torch.fmod(<I>, <i>)", "torch.remainder(<I>, <I>.abs() + 1)",
    "torch.div(<I>, <I> | 1, rounding_mode='floor')", "<I>.sign()", "<I>.pow(2)", "<T> ** 2", "<F> ** 3", "<B> & <B>", "<B> | <B>", "<B> ^ <B>",
    "torch.logical_not(<B>)", "<B>.logical_and(<B>)", "<B> + <B>", "<B> * <F>", "<I> / <I>.abs().add(1)", "torch.float_power(<F>.abs() + 1, <u>)",
    "torch.true_divide(<I>, <i>)", "torch.outer(<F1>, <F1>)", "<F>.deg2rad()", "<T>.type_as(<T>)", "torch.ldexp(<F>, <I>.clamp(-2, 2))",
)  # fmt: skip

FUNCTIONS = (
    "~<F>.sin()", "~<F>.cos()", "~<F>.tanh()", "~<F>.exp()", "~<F>.sigmoid()", "~F.gelu(<F>)", "~F.gelu(<F>, approximate='tanh')", "~F.silu(<F>)",
    "~<F>.erf()", "~torch.log(<F>.abs() + 0.5)", "~<F>.abs().log1p()", "~<F>.expm1()", "~<F>.exp2()", "~(<F>.abs() + 1).log2()",
    "~(<F>.abs() + 1).log10()", "~F.elu(<F>)", "~F.elu(<F>, alpha=<u>)", "~F.selu(<F>)", "~F.celu(<F>, <u>)", "~F.softplus(<F>)",
    "~F.softplus(<F>, beta=2.0, threshold=1.0)", "~F.hardswish(<F>)", "~F.hardsigmoid(<F>)", "~F.mish(<F>)", "~F.logsigmoid(<F>)",
    "~F.softsign(<F>)", "~F.tanhshrink(<F>)", "~<F>.atan()", "~<F>.asinh()", "~<F>.sinh()", "~<F>.cosh()", "~<F>.tan()", "~<F>.sinc()",
    "~<F>.clamp(-0.9, 0.9).atanh()", "~<F>.clamp(-0.9, 0.9).asin()", "~<F>.clamp(-0.9, 0.9).acos()", "~(<F>.abs() + 1.1).acosh()",
    "~<F>.clamp(-0.9, 0.9).erfinv()", "~torch.atan2(<F>, <F>.abs() + 0.5)", "~torch.hypot(<F>, <F>)", "~torch.logaddexp(<F>, <F>)",
    "~torch.logaddexp2(<F>, <F>)", "~torch.xlogy(<F>, <F>.abs() + 0.5)", "~torch.pow(<F>.abs() + 0.5, <F>)", "~(<F>.abs() + 0.5) ** <x>",
    "~<x> ** <F>", "~torch.special.xlog1py(<F>, <F>.abs())", "~<F>.erfc()", "~(<F>.abs() + 1).lgamma()", "~(<F>.abs() + 1).digamma()",
    "~<F>.logit(0.1)", "~F.glu(<F+>, <d>)", "~<I>.sin()", "~<I>.sigmoid()", "~<B>.float().exp()", "~torch.special.entr(<F>.abs())",
    "~torch.special.i0(<F>)", "~<I>.abs().sqrt()", "~F.smooth_l1_loss(<F>, <F=>)", "~F.mse_loss(<F>, <F=>, reduction='none')",
    "~F.huber_loss(<F>, <F=>, delta=<u>)", "~F.binary_cross_entropy_with_logits(<F>, <F=>.sigmoid())", "~F.kl_div(<F>, <F=>, reduction='sum')",
    "~F.l1_loss(<F>, <F=>)", "~F.soft_margin_loss(<F>, <F=>.sign())", "~<F>.rad2deg() / 50", "~torch.special.ndtr(<F>)",
    "~torch.special.log_ndtr(<F>)", "~torch.special.erfcx(<F>.abs())", "~F.poisson_nll_loss(<F>, <F=>.abs())",
    "~F.gaussian_nll_loss(<F>, <F=>, <F=>.abs() + 0.5)", "~F.hinge_embedding_loss(<F>, <F=>.sign())",
    "~F.margin_ranking_loss(<F1>, <F=>, <F=>.sign())",
)  # fmt: skip

CUTS = (
    "<T> > <T>", "<T> < <i>", "<T> >= <T>", "<T> == <T>", "<T> != <x>", "<N> <= <N>", "<F>.floor()", "<F>.ceil()", "<F>.round()", "<F>.trunc()",
    "<F>.frac()", "<F>.sign()", "<F> // <x>", "<F> % <x>", "torch.fmod(<F>, <x>)", "torch.remainder(<F>, <F>.abs() + 0.5)",
    "torch.div(<F>, <x>, rounding_mode='floor')", "<F>.isnan()", "<F>.isinf()", "<F>.isfinite()", "<F>.signbit()", "<F>.to(torch.int32)",
    "<F>.long()", "<F>.to(torch.int8)", "<F>.to(torch.uint8)", "torch.heaviside(<F>, <F>)", "<F+>.argmax(<d>)", "<F+>.argmin(<d>, keepdim=True)",
    "<T>.argmax()", "<F+>.max(<d>)[1]", "<F+>.min(<d>)[1]", "<F+>.sort(<d>, stable=True)[1]", "<F+>.argsort(<d>, stable=True)",
    "torch.logical_and(<F>, <T>)", "<F>.logical_not()", "torch.isclose(<F>, <F>)", "<T>.any()", "<T+>.any(<d>)", "<T+>.all(<d>, keepdim=True)",
    "<T>.all()", "<T>.count_nonzero()", "<T+>.count_nonzero(<d>)", "torch.eq(<T>, <T>).sum()", "<F+>.cummax(<d>)[1]", "<F>.round(decimals=1)",
    "F.hardshrink(<F>, <u>)", "F.softshrink(<F>, <u>)", "torch.bucketize(<F>, torch.tensor([-1.0, 0.0, 0.5]))", "torch.isin(<I>, <I1>)",
    "<F+>.mode(<d>)[0]", "<F+>.amax(<d>) == <F+>.amin(<d>)", "F.rrelu(<F>)", "torch.nextafter(<F>, <F>)",
)  # fmt: skip

VIEWS = (
    "<T2>.t()", "<T+>.transpose(<dd>)", "<T+>.permute(<perm>)", "<T>.reshape(<view>)", "<T>.view(<view>)", "<T>.flatten()", "<T+>.flatten(<dd>)",
    "<T>.unsqueeze(0)", "<T+>.unsqueeze(<d>)", "<T>.squeeze()", "<T+>.squeeze(<d>)", "<T>.expand(<wide>)", "<T>.broadcast_to(<wide>)", "<T+>[<at>]",
    "<T>[None]", "<T>[..., None]", "<T+>[::2]", "<T+>[..., 1:]", "<T+>.select(<d>, 0)", "<T+>.select(<d>, -1)", "<T+>.narrow(<d>, 0, 1)",
    "<T+>.narrow(<d>, 1, <n>)", "<T+>.chunk(2, <d>)[0]", "<T+>.chunk(3, <d>)[-1]", "<T+>.split(<n>, <d>)[0]", "<T+>.unbind(<d>)[0]",
    "<T2>.diagonal()", "<T2>.diagonal(1)", "<T3>.diagonal(-1, 0, 2)", "<T+>.unfold(<d>, <n>, <n>)", "<T+>.movedim(<dd>)", "<T>.view_as(<T=>)",
    "<T>.mT", "<T>.detach()", "<T+>.swapaxes(<dd>)", "<T>.expand_as(<T>)", "<T+>.unflatten(<d>, (-1, <n>))", "<T>.ravel()", "<T>.contiguous()",
    "<T>.clone()", "torch.atleast_2d(<T>)", "<T+>.tensor_split(2, <d>)[1]", "<T4>.contiguous(memory_format=torch.channels_last)", "<T+>[0]",
    "<T+>[-1]", "<T>.T if <T>.dim() == 2 else <T>", "torch.narrow_copy(<T+>, <d>, 0, 1)", "<T>.reshape(<view>).reshape(<shape>)",
    "<T+>.as_strided((<n>, 2), (1, 0))", "<T+>.as_strided((2,), (1,), 1)", "!<F>.clone().view(torch.int32)", "torch.squeeze_copy(<T>)",
    "<T>.reshape(-1, <n>)",
)  # fmt: skip

COPIES = (
    "<T+>.flip(<d>)", "torch.flip(<T+>, <dims>)", "<T+>.roll(<i>, <d>)", "<T>.roll(<i>)", "torch.tile(<T>, (<n>,))",
    "<T+>.repeat_interleave(<n>, <d>)", "<T2>.tril()", "<T2>.triu(1)", "<T3>.tril(-1)", "torch.cat([<T+>, <T=>], <d>)",
    "torch.cat([<T+>, <T=>, <T=>], <d>)", "torch.cat([<T+>[:1], <T=>])", "torch.cat([<T+>[1:], <T=>[::2]])", "torch.stack([<T>, <T=>])",
    "torch.stack([<T+>, <T=>], <d>)", "torch.hstack([<T>, <T=>])", "torch.vstack([<T>, <T=>])", "torch.dstack([<T>, <T=>])", "F.pad(<T+>, (1, 2))",
    "F.pad(<T+>, (-1, 1))", "F.pad(<F+>, (2, 0), value=<x>)", "F.pad(<T2>, (0, 1, 1, 0))", "F.pad(<F3>, (1, 1), mode='reflect')",
    "F.pad(<F3>, (1, 2), mode='replicate')", "F.pad(<F4>, (1, 1, 1, 0), mode='reflect')", "F.pad(<F4>, (1, 0, 0, 1), mode='replicate')",
    "F.pad(<F3>, (1, 1), mode='circular')", "torch.diag(<T1>)", "torch.diag(<T2>, 1)", "torch.diag_embed(<T+>)", "torch.zeros_like(<T>)",
    "torch.ones_like(<T>, dtype=<dtype>)", "torch.full_like(<T>, <i>)", "torch.full(<shape>, <x>)", "<T>.new_zeros(<n>, 2)",
    "<T>.new_full((2,), <i>)", "torch.eye(<n>, 3)", "torch.arange(<n>)", "torch.arange(<i>, 6, 2, dtype=<dtype>)", "torch.linspace(0, 1, <n>)",
    "torch.arange(<shape>[0])", "torch.block_diag(<T2>, <T2>)", "torch.meshgrid(<T1>, <T1>, indexing='ij')[0]",
    "F.pixel_shuffle(<F4>.repeat(1, 4, 1, 1), 2)", "F.one_hot(<I>.remainder(4).long(), 4)", "torch.tril_indices(<n>, 3)[0]", "torch.rot90(<T2>)",
    "torch.cartesian_prod(<T1>, <T1>)", "<T2>.fliplr()", "torch.combinations(<T1>)", "torch.vander(<F1>, 3)",
    "F.channel_shuffle(<F4>.repeat(1, 2, 1, 1), 2)", "~F.pixel_unshuffle(F.pad(<F4>.sum((0, 1), keepdim=True), (1, 1, 1, 1)), 2)",
    "torch.logspace(0, 1, <n>)", "<T>.fill(<i>)",
)  # fmt: skip

REDUCTIONS = (
    "~<T>.sum()", "~<T+>.sum(<d>)", "~<T+>.sum(<d>, keepdim=True)", "~<T+>.sum(<dims>)", "~<T+>.sum(<d>, dtype=<float>)", "~<F>.mean()",
    "~<F+>.mean(<d>, keepdim=True)", "~<F+>.mean(<dims>)", "~<N>.prod()", "~<N+>.prod(<d>)", "<T+>.amax(<d>)", "<T+>.amin(<dims>, keepdim=True)",
    "<T>.amax()", "<T>.max()", "<T>.min()", "<T+>.max(<d>)[0]", "<N+>.min(<d>, keepdim=True)[0]", "~<F>.var()", "~<F+>.var(<d>)",
    "~<F+>.std(<d>, keepdim=True)", "~<F+>.var(<dims>, correction=0)", "~torch.var_mean(<F+>, <d>)[0]", "~torch.std_mean(<F+>.nan_to_num(0, 1, -1), <d>)[1]",
    "~<F>.norm()", "~<F+>.norm(1, <d>)", "~<F+>.norm(2, <d>, keepdim=True)", "~torch.linalg.vector_norm(<F+>, float('inf'), <d>)",
    "~<F+>.logsumexp(<d>)", "~<F+>.softmax(<d>)", "~<F+>.log_softmax(<d>)", "~F.softmin(<F+>, <d>)", "~<F+>.softmax(<d>, dtype=<float>)",
    "~<N+>.cumsum(<d>)", "~<T+>.cumsum(<d>, dtype=<float>)", "~<N+>.cumprod(<d>)", "~<F+>.logcumsumexp(<d>)", "<N+>.cummax(<d>)[0]",
    "<N+>.cummin(<d>)[0]", "~F.normalize(<F+>, dim=<d>)", "~F.cosine_similarity(<F+>, <F=>, dim=<d>)", "~<F>.nansum()", "~<F+>.nanmean(<d>)",
    "torch.aminmax(<N>)[0]", "<F+>.median(<d>)[0]", "<F>.median()", "<F+>.sort(<d>, stable=True)[0]", "<F+>.topk(1, <d>)[0]",
    "<F+>.kthvalue(1, <d>)[0]", "~<F+>.renorm(2, <d>, 1.0)", "~F.layer_norm(<F+>, <shape>[-1:])", "~F.layer_norm(<F+>, <shape>[-1:], <F1>, <F1>)",
    "~F.rms_norm(<F+>, <shape>[-1:])", "~F.batch_norm(<F3>, None, None, training=True)", "~F.instance_norm(<F3>)", "~F.group_norm(<F3>, 1)",
    "~F.batch_norm(<F4>, None, None, training=True)", "~F.group_norm(<F4>.repeat(1, 2, 1, 1), 2)", "~F.local_response_norm(<F3>, 2)",
    "~F.cross_entropy(<F2>, <index>.expand(<shape>[0]))", "~F.cross_entropy(<F2>, <F=>.softmax(-1))",
    "~F.nll_loss(<F2>, <index>.expand(<shape>[0]), reduction='none')", "~torch.trapezoid(<F+>, dim=<d>)", "~<F+>.diff(dim=<d>)",
    "~torch.dist(<F>, <F=>)", "~<F2>.trace()", "~torch.cdist(<F2>, <F2>)", "~F.pairwise_distance(<F2>, <F=>)",
    "~F.cross_entropy(<F2>, <index>.expand(<shape>[0]), label_smoothing=0.1)", "~F.triplet_margin_loss(<F2>, <F=>, <F=>)",
    "~<F+>.quantile(0.5, <d>)", "~torch.corrcoef(<F2>)", "~torch.cov(<F2>)", "~<F+>.std(<d>, correction=0) * <F+>.mean(<d>)",
    "~<F+>.sub(<F+>.mean(-1, keepdim=True)).square().mean(-1)",
)  # fmt: skip

INDEXING = (
    "<T+>.gather(<d>, <place>)", "<T+>.index_select(<d>, <index>)", "<T+>[<first>]", "<T2>[:, <first>.remainder(1)]", "<T2>[<first>, 0]",
    "<T3>[<first>, :, <first>.remainder(1)]", "<T+>[<B=>.nonzero()[:0]]", "<T+>.scatter(<d>, <place>, <T=>)", "<T+>.scatter(<d>, <place>, <i>)",
    "~<N+>.scatter_add(<d>, <place>, <N=>)", "~<F+>.scatter_reduce(<d>, <place>, <F=>, 'prod')", "<N+>.scatter_reduce(<d>, <place>, <N=>, 'amax')",
    "~<F+>.scatter_reduce(<d>, <place>, <F=>, 'mean', include_self=False)", "<N+>.scatter_reduce(<d>, <place>, <N=>, 'amin', include_self=False)",
    "~<F+>.scatter_reduce(<d>, <place>, <F=>, 'sum')", "~<N+>.index_add(<d>, <index>, <N=>.index_select(<d>, <index>))",
    "<T+>.index_copy(<d>, <index>[:1], <T=>.index_select(<d>, <index>[:1]))", "<T+>.index_fill(<d>, <index>, <i>)", "<T+>.take(<place>)",
    "torch.take_along_dim(<T+>, <place>, <d>)", "~<F+>.index_put((<first>,), <F>, accumulate=True)", "<T+>.index_put((<first>[:1],), <T>)",
    "F.embedding(<first>, <F2>)", "F.embedding(<place>.remainder(1), <F2>)", "~F.embedding_bag(<first>, <F2>, torch.tensor([0]), mode='sum')",
    "torch.select_scatter(<T+>, <T>, <d>, 0)", "torch.slice_scatter(<T+>, <T=>[:1], 0, 0, 1)", "torch.diagonal_scatter(<T2>, <T1>)",
    "<T+>.masked_scatter(<B=>, <T=>)", "torch.searchsorted(<F1>.sort()[0], <F1>)", "<T+>[<first>] * <T+>[<first>]", "<T+>.index_select(0, <first>)",
    "~<T+>[<first>].sum(0)", "~torch.bincount(<first>, minlength=3)", "torch.put(<T+>, <place>.remainder(1), <T=>)",
    "~torch.index_reduce(<F+>, <d>, <index>, <F=>.index_select(<d>, <index>), 'prod')", "<T+>[..., <first>.remainder(1)]",
    "<T+>[torch.tensor([0, -1])]", "<T2>[torch.tensor([[0], [-1]]), torch.tensor([0, -1])]",
    "<T+>[torch.tensor([True] + [False] * (<shape>[0] - 1))]",
)  # fmt: skip

PRODUCTS = (
    "~<F2> @ <F2>.t()", "~<F2>.t() @ <F2=>", "~torch.mm(<F2>, <F2>)", "~<F+> @ <F+>", "~torch.matmul(<F3>, <F3=>.mT)",
    "~torch.bmm(<F3>, <F3=>.transpose(1, 2))", "~F.linear(<F+>, <F2>)", "~F.linear(<F2>, <F2=>, <F1>)", "~torch.addmm(<F>, <F2>, <F2>.t())",
    "~torch.addmm(<F1>, <F2>, <F2=>.t(), beta=<x>, alpha=<x>)", "~<F2>.mv(<F1>)", "~<F1>.dot(<F1=>)", "~torch.einsum('ij,kj->ik', <F2>, <F2=>)",
    "~torch.einsum('bij,bkj->bik', <F3>, <F3=>)", "~torch.baddbmm(<F3>, <F3>, <F3>)", "~F.conv1d(<F3>, <F3>)",
    "~F.conv1d(<F3>, <F3>, padding=1, stride=2)", "~F.conv2d(<F4>, <F4>, padding=1)", "~F.scaled_dot_product_attention(<F4>, <F4=>, <F4=>)",
    "~F.scaled_dot_product_attention(<F3>, <F3=>, <F3=>, is_causal=True)", "~F.bilinear(<F2>, <F2>, <F3>)", "~torch.tensordot(<F2>, <F2=>, 2)",
    "~torch.kron(<F2>, <F2>)", "~<I2> @ <I2>.t()", "~F.conv_transpose1d(<F3>, <F3>)", "~torch.chain_matmul(<F2>, <F2>.t())",
    "~torch.linalg.det(<F2> @ <F2>.t() + torch.eye(<shape>[0]))", "~torch.addr(<F2>, <F1>, <F1>)", "~torch.addmv(<F1>, <F2>, <F1>)",
    "~torch.inner(<F+>, <F+>)", "~<F1> @ <F2>",
)  # fmt: skip

POOLING = (
    "F.max_pool1d(<F3>, 2)", "F.max_pool1d(<F3>, 3, 1, 1)", "F.max_pool2d(<F4>, 2, ceil_mode=True)", "F.max_pool2d(<F4>, 3, 2, 1)",
    "F.max_pool2d(<F4>, 2, 1, dilation=2)", "~F.avg_pool1d(<F3>, 2)", "~F.avg_pool2d(<F4>, 2, ceil_mode=True)",
    "~F.avg_pool2d(<F4>, 3, 1, 1, count_include_pad=False)", "~F.adaptive_avg_pool1d(<F3>, <n>)", "~F.adaptive_avg_pool2d(<F4>, (<n>, 2))",
    "F.adaptive_max_pool1d(<F3>, <n>)", "F.adaptive_max_pool2d(<F4>, <n>)", "~F.lp_pool1d(<F3>, 2.0, 2)", "F.interpolate(<F3>, scale_factor=2)",
    "F.interpolate(<F4>, size=(<n>, 5))", "~F.interpolate(<F3>, size=<n>, mode='linear')", "~F.interpolate(<F4>, scale_factor=2, mode='bilinear')",
    "~F.interpolate(<F4>, size=(5, <n>), mode='bilinear', align_corners=True)", "~F.interpolate(<F4>, size=(3, 4), mode='bicubic')",
    "F.interpolate(<F4>, size=(3, <n>), mode='nearest-exact')", "~F.interpolate(<F4>, size=(<n>, 3), mode='area')", "F.unfold(<F4>, 2)",
    "~F.fold(F.unfold(<F4>, 1), <shape>[2:], 1)", "~F.grid_sample(<F4>, <F4>[..., :2].clamp(-0.9, 0.9), align_corners=False)",
    "~F.affine_grid(<F3>, (1, 1, 2, 3), align_corners=True)", "F.max_pool3d(<F4>, 2)", "~F.avg_pool3d(<F4>, 2)",
    "~F.interpolate(<F4>, size=(2, 5), mode='bilinear', antialias=True)",
)  # fmt: skip

WRITES = (
    "<W>.add_(<T>)", "<W>.sub_(<x>)", "<W>.mul_(<T>)", "<W>.mul_(<i>)", "<W>.neg_()", "<W>.abs_()", "<W>.clamp_(<i>, 2)", "<W>.copy_(<T>)",
    "<W>.fill_(<i>)", "<W>.zero_()", "<W>.relu_()", "~<W>.sigmoid_()", "~<W>.sin_()", "~<W>.tanh_()", "~<W>.exp_()", "<W>.masked_fill_(<B>, <i>)",
    "<W>.div_(<x>)", "<W+>[<at>] = <T>", "<W+>[<at>] = <i>", "<W+>[<at>] += <T>", "<W+>[<at>].mul_(<i>)", "<W+>[<at>].copy_(<T>)",
    "<W+>[<at>] = <W+>[<at>] + 1", "<W+>.t()[0] = <i>", "<W+>.transpose(<dd>).add_(<T>)", "<W+>.select(<d>, 0).add_(<T>)",
    "<W+>.select(<d>, -1).zero_()", "<W+>.unsqueeze(0).mul_(<x>)", "<W>.view(-1)[:2].add_(<i>)", "<W>.view(-1).copy_(<T>)",
    "<W2>.diagonal().fill_(<i>)", "<W2>.t().copy_(<T>)", "<W+>[<first>] = <T>", "<W+>[<first>] = <i>", "<W+>[<B=>] = <i>",
    "~<W+>.index_put_((<first>,), <T>, accumulate=True)", "<W+>.scatter_(<d>, <place>, <T=>)", "~<W+>.scatter_add_(<d>, <place>, <T=>)",
    "~<W+>.index_add_(<d>, <index>, <T=>.index_select(<d>, <index>))", "<W+>.index_fill_(<d>, <index>, <i>)", "~<W+>.cumsum_(<d>)", "<W+>.tril_()",
    "<W+>.unsqueeze_(0)", "<W+>.squeeze_()", "<W2>.t_()", "<W+>.transpose_(<dd>)", "torch.add(<T>, <T>, out=<W>)", "torch.mul(<T>, <i>, out=<W>)",
    "~torch.sin(<F>, out=<W>)", "~torch.sum(<F+>, <d>, out=<W>)", "torch.clamp(<F>, <i>, 2, out=<W>)", "torch.cat([<T+>, <T=>], <d>, out=<W>)",
    "~torch.mm(<F2>, <F2>, out=<W>)", "<W>.logical_not_()", "<W> += <T>", "<W> *= <x>", "<W> -= <W>", "<W+>[<at>], <W+>[<at>] = <T>, <i>",
    "<W+>[1:].copy_(<T>)", "~<W>.lerp_(<F>, <u>)", "<W>.addcmul_(<F>, <F>, value=<x>)", "<W>.pow_(2)", "<W+>.narrow(<d>, 0, 1).add_(<T>)",
    "<W+>.chunk(2, <d>)[0].mul_(<i>)", "<W+>.swapaxes_(<dd>)", "F.relu(<W>, inplace=True)", "~F.silu(<W>, inplace=True)",
    "F.leaky_relu(<W>, 0.1, inplace=True)", "<W>.bitwise_and_(<I>)", "<W>.remainder_(3)", "torch.where(<B>, <T>, <T>, out=<W>)",
    "torch.gather(<T+>, <d>, <place>, out=<W>)", "<W>.floor_divide_(2)", "<W+>.masked_scatter_(<B=>, <T=>)", "<W>.detach().mul_(<i>)",
    "<W>.data.add_(<i>)", "<W>.set_(<T>)", "<W+>.index_copy_(<d>, <index>[:1], <T=>.narrow(<d>, 0, 1))",
)  # fmt: skip

PAIRS = (
    "<F+>.max(<d>)", "~torch.var_mean(<F+>.nan_to_num(0, 1, -1), <d>)", "~torch.std_mean(<F>.nan_to_num(0, 1, -1))",
    "<T+>.chunk(2, <d>)[:2]", "<T+>.split(<n>, <d>)[:2]", "<N+>.cummax(<d>)",
    "torch.aminmax(<N>)", "<N+>.sort(<d>, stable=True)", "<T2>.t().unbind()[:2]", "torch.broadcast_tensors(<T>, <T>)", "<T+>.tensor_split(2, <d>)",
    "<N+>.topk(1, <d>)", "torch.frexp(<F>)", "~torch.native_layer_norm(<F+>.nan_to_num(0, 1, -1), <shape>[-1:], None, None, 1e-5)[:2]", "<F+>.min(<d>)",
    "torch.meshgrid(<T1>, <T1>, indexing='xy')", "torch.max_pool2d_with_indices(<F4>, 2)", "F.adaptive_max_pool2d(<F4>, 2, return_indices=True)",
    "<F+>.median(<d>)", "torch.unique_consecutive(<T1>[:1], return_counts=True)", "~torch.linalg.qr(<F2>[:0])",
)  # fmt: skip

ROWS: dict[str, tuple[int, tuple[str, ...]]] = {
    "pointwise": (7, POINTWISE),
    "functions": (3, FUNCTIONS),
    "cuts": (2, CUTS),
    "views": (6, VIEWS),
    "copies": (3, COPIES),
    "reductions": (4, REDUCTIONS),
    "indexing": (3, INDEXING),
    "products": (2, PRODUCTS),
    "pooling": (1, POOLING),
    "writes": (5, WRITES),
    "pairs": (1, PAIRS),
}
"""Kinds of rows, each with how often it is drawn."""
