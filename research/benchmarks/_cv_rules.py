"""Rules that find the eight entity types of Resume NER in CVs of managers, the teacher in `first_model.py`.

The rules were written from general knowledge, with access to the unannotated training texts and the annotated
development set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spacy.language import Language
from spacy.tokens import Doc

Found = tuple[int, int, str]

SURNAMES = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜戚谢邹喻柏窦章云苏潘葛奚范彭郎鲁韦马苗凤方俞任袁柳"
    "鲍史唐费廉岑薛雷贺倪汤滕殷罗毕郝邬安常乐于时傅皮卞齐康伍余顾孟平黄穆萧尹姚邵湛汪祁毛狄米贝明臧戴谈宋茅庞熊纪舒屈"
    "项祝董梁杜阮蓝闵席季麻强贾路娄江童颜郭梅盛林刁钟徐邱骆高夏蔡田樊胡凌霍虞万支柯卢莫房裘缪解应宗丁宣邓郁单杭洪包左石"
    "崔吉钮龚程邢裴陆荣翁甄曲封储靳段焦巴谷车侯班宁仇栾甘厉祖武符刘景詹龙叶幸司黎薄白蒲赖卓屠池乔闻党翟谭姬申冉桑桂牛"
    "边燕冀尚温庄晏柴瞿阎充慕连习艾向古易戈廖衡步耿满匡文寇欧沃蔚巩聂冷辛那简饶曾沙丰关相荆游权盖桓肖付佟仝覃苟邸丛岳帅"
)
COMPOUND = "欧阳|上官|司马|东方|夏侯|诸葛|尉迟|皇甫|公孙|慕容|长孙|宇文|司徒|令狐"
COUNTRIES = "中国|中国香港|香港|台湾|澳门|美国|英国|法国|德国|日本|韩国|加拿大|澳大利亚|新西兰|新加坡|马来西亚"
PEOPLES = "汉|蒙古|回|藏|维吾尔|苗|彝|壮|布依|朝鲜|满|侗|瑶|白|土家|哈尼|哈萨克|傣|黎|畲|高山|纳西|羌|仫佬|锡伯|土"
DEGREES = (
    "(?:博士|硕士|在职)?研究生|(?:EMBA|MBA)?(?:博士|硕士)|双?学士|大学(?:本科|专科)|本科|大专|中专|专科|高中|EMBA|MBA"
)
FIELDS = "(?:工商|企业|公共|行政|经济|项目|高级管理人员工商)管理|法律|会计|(?:国际)?金融|国际贸易|[一-龥]{1,9}(?<!大)学"
ORGANISATIONS = (
    "公司|集团|大学|学院|学校|党校|[^学]系|事务所|研究所|研究院|设计院|科学院|医院|法院|检察院|银行|[分支总]行|交易所|出版社|报社|"
    "电视台|协会|学会|委员会|联合会|商会|促进会|研究会|基金会|管委会|[国计建科]委|经贸委|发改委|总工会|政协|科协|厅|政府|[市县省区]委|"
    "[省市县区业务安育工土监林农商财税革划力理事]局|(?<!分)厂(?!长)|中心|部队|营业部|分所|商场|酒店|煤矿|油田|农场|控股|实业|有限|信托|科技(?![部处科管与])|股份"
)
POSTS = (
    "董事|监事|经理|总裁|主任|主席|书记|秘书|总监|[^成增生]长|委员|常委|教授|助教|会计|出纳|师|[科职干学教务技业党会队议裁销管购术动划练]员|"
    "研究员|代表|顾问|合伙人|负责人|专家|院士|导师|助理|干部|工人|主编|总编|编辑|学生|主管|主办|博士后|[行运务]官|高工"
)
DELIMITERS = r"[，。；、：:,;！？“”\s/]"
DATES = (
    r"(?:自|从|于)?(?:19|20)\d\d年?(?:[.．]?\d{1,2}月?)?(?:\d{1,2}日)?(?:[-—–~－至到今]+|起|期间|间|以来|以后|后|前)*"
)
VERBS = (
    "至今|历任|曾任|现任|先后|担任|兼任|[任就供]职[于在]?|毕业于|就读于|服务于|受聘于?为?|聘任?为|当选为?|被?选为|出任|(?:正式)?加入|加盟|进入|调[入至任]|"
    "参加工作|从事|工作|毕业|学习|任教|等职?务?(?=$|[，。；])|获得?|授予|同时|现[为在]?|曾|以及|(?:^|(?<=[，。；年0-9]))为|"
    "(?<![主责历前离担兼出现曾首继信委专常])任(?![务教职何命期免])|(?<![内存现所])在(?!职研|线|读)|(?<![属等关基由对])于"
)
# A conjunction separates two phrases only after a complete phrase, since some company names contain conjunctions.
AND = "兼(?!职)|(?<=[司团学院所行会局厅部厂事理长任师书员管裁记席问家])(?:和|及|与)(?![计信])"

_SURNAME = f"(?:{COMPOUND}|[{SURNAMES}])"
_FIXED = {
    "NAME": rf"(?:^|(?<=姓名：)|(?<=[，。；])){_SURNAME}[一-龥]{{0,2}}?(?=先生|女士)|"
    rf"(?:^|(?<=姓名：)){_SURNAME}[一-龥]{{1,2}}(?=[，：（(]|男|女|性别|出生)",
    "CONT": rf"(?:{COUNTRIES})国?籍",
    "RACE": rf"(?:{PEOPLES})族|(?<=民族：)(?:{PEOPLES})",
    "LOC": "(?<=[，。])[一-龥]{2,6}(?:人|省|市|县)(?=[，。])",
}
_SPLIT = re.compile("|".join((DELIMITERS, DATES, VERBS, AND)))
_PARENTHESIS = re.compile(r"[（(][^（）()]*[）)]")
_ORGANISATION = re.compile(rf".*(?:{ORGANISATIONS})")
_TITLE = re.compile(rf".{{0,16}}(?:{POSTS})|中共党员")
_DEGREE = re.compile(
    rf"(?P<field>(?:{FIELDS})(?:专业)?)??(?P<degree>(?:{DEGREES})(?:学历|学位|文化(?:程度)?)?|大学(?:学历|文化(?:程度)?)?)(?:在读)?"
)
_MAJOR = re.compile("[一-龥]{2,12}专业")


def find_entities(text: str) -> list[Found]:
    """Return the entities that the rules find in a text, sorted and without overlaps."""
    found: list[Found] = []
    for label, rule in _FIXED.items():
        _add(found, ((match.start(), match.end(), label) for match in re.finditer(rule, text)))
    for start, end in _pieces(text):
        _add(found, ((start + first, start + last, label) for first, last, label in _in_piece(text[start:end])))
    return sorted(found)


def _add(found: list[Found], matches: Iterator[Found]) -> None:
    for start, end, label in matches:
        if start < end and not any(start < other_end and other_start < end for other_start, other_end, _ in found):
            found.append((start, end, label))


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield the segments of a text between punctuation, dates and verbs. Short parentheses are part of a name."""
    masked = _PARENTHESIS.sub(lambda match: ("_" if len(match[0]) <= 8 else "，") * len(match[0]), text)
    start = 0
    for match in _SPLIT.finditer(masked):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _in_piece(piece: str) -> Iterator[Found]:
    """Yield the entities of a segment: an organisation, followed by a field with a degree, or by a title."""
    organisation = _ORGANISATION.match(piece)
    at = organisation.end() if organisation else 0
    rest, end = piece[at:], len(piece)
    degree = _DEGREE.fullmatch(piece) or _DEGREE.fullmatch(rest)
    if degree:
        at = end - len(degree[0])
        if degree["field"]:
            yield at, at + len(degree["field"]), "PRO"
        yield at + degree.start("degree") - degree.start(), at + degree.end("degree") - degree.start(), "EDU"
    elif _MAJOR.fullmatch(rest):
        yield at, end, "PRO"
    elif _TITLE.fullmatch(rest):
        yield at, end, "TITLE"
    yield 0, at, "ORG"


@Language.component("cv_rules", assigns=["doc.ents"])
def cv_rules(doc: Doc) -> Doc:
    spans = (doc.char_span(start, end, label=label) for start, end, label in find_entities(doc.text))
    doc.set_ents([span for span in spans if span is not None])
    return doc
