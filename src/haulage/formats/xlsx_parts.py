"""What there is in a workbook beside the rows: where its sheets are, a few looks of a cell, and no date of making."""

from __future__ import annotations

from collections.abc import Mapping

SHEET_NAME = "Export"  # fixed, since not every name of a dataset is one of a sheet; the next is "Export 2"

# Places in cellXfs below.
GENERAL, HEADER, DAY, MOMENT, MOMENT_FINE, MOMENT_UTC, MOMENT_UTC_FINE, CLOCK, CLOCK_FINE = range(9)

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"

_FORMATS = {
    164: "yyyy\\-mm\\-dd",
    165: "yyyy\\-mm\\-dd\\ hh:mm:ss",
    166: "yyyy\\-mm\\-dd\\ hh:mm:ss.000",
    167: "yyyy\\-mm\\-dd\\ hh:mm:ss\\ &quot;UTC&quot;",
    168: "yyyy\\-mm\\-dd\\ hh:mm:ss.000\\ &quot;UTC&quot;",
    169: "hh:mm:ss",
    170: "hh:mm:ss.000",
}
_LOOKS = ("", 'fontId="1" applyFont="1"', *(f'numFmtId="{number}" applyNumberFormat="1"' for number in _FORMATS))


def _look(attributes: str) -> str:
    given = {"numFmtId": "0", "fontId": "0", "fillId": "0", "borderId": "0", "xfId": "0"}
    rest = [f'{name}="{value}"' for name, value in given.items() if f"{name}=" not in attributes]
    return f"<xf {' '.join([*rest, attributes]).strip()}/>"


_STYLES = (
    f'{_XML}<styleSheet xmlns="{MAIN}">'
    f'<numFmts count="{len(_FORMATS)}">'
    + "".join(f'<numFmt numFmtId="{number}" formatCode="{code}"/>' for number, code in _FORMATS.items())
    + '</numFmts><fonts count="2"><font><sz val="11"/><name val="Calibri"/><family val="2"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/><family val="2"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    f'<cellXfs count="{len(_LOOKS)}">{"".join(map(_look, _LOOKS))}</cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)


def sheet_part(number: int) -> str:
    """The place of a sheet in the archive, counted from 1."""
    return f"xl/worksheets/sheet{number}.xml"


def parts(sheets: int) -> Mapping[str, str]:
    """Everything but the sheets, in the order of the archive."""
    numbers = range(1, sheets + 1)
    names = [SHEET_NAME, *(f"{SHEET_NAME} {number}" for number in numbers[1:])]
    return {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/>'
        + "".join(f'<Override PartName="/{sheet_part(n)}" ContentType="{_KIND}.worksheet+xml"/>' for n in numbers)
        + "</Types>",
        "_rels/.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'{_XML}<workbook xmlns="{MAIN}" xmlns:r="{_OFFICE}">'
        "<bookViews><workbookView/></bookViews><sheets>"
        + "".join(f'<sheet name="{names[n - 1]}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
        + "".join(
            f'<Relationship Id="rId{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in numbers
        )
        + f'<Relationship Id="rId{sheets + 1}" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": _STYLES,
    }


# One row of headers, which stays in sight.
SHEET_START = (
    f'{_XML}<worksheet xmlns="{MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    '<selection pane="bottomLeft" activeCell="A2" sqref="A2"/></sheetView></sheetViews>'
    "<cols>{columns}</cols><sheetData>"
)
SHEET_END = "</sheetData></worksheet>"
