"""Taking resources out of templates, and noticing what LocalStack did not create."""

import pytest

from tests.localstack.replaced import REPLACED, edited
from tests.localstack.templates import (
    NotCreated,
    Replaced,
    ReplacementIncomplete,
    ReplacementUnused,
    require_created,
    require_used,
    taken_out,
)

SPARK = Replaced("AWS::EMRServerless::Application", "ours", attributes={"ApplicationId": "00ours"})


def template(**resources):
    return {"Resources": resources}


def function(**variables):
    return {"Type": "AWS::Lambda::Function", "Properties": {"Environment": {"Variables": variables}}}


def test_a_resource_of_the_list_is_gone_and_references_to_it_have_the_value_of_the_list():
    made = taken_out(
        template(
            App={"Type": "AWS::EMRServerless::Application"},
            Job={
                **function(ID={"Fn::Join": ["/", ["a", {"Fn::GetAtt": ["App", "ApplicationId"]}]]}),
                "DependsOn": ["App", "Role"],
            },
            Role={"Type": "AWS::IAM::Role", "DependsOn": "App"},
        ),
        [SPARK],
    )
    assert made["Resources"] == {
        "Job": {**function(ID={"Fn::Join": ["/", ["a", "00ours"]]}), "DependsOn": ["Role"]},
        "Role": {"Type": "AWS::IAM::Role"},
    }


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        ({"Ref": "App"}, "uses Ref of AWS::EMRServerless::Application"),
        ({"Fn::GetAtt": ["App", "Arn"]}, "uses Arn of AWS::EMRServerless::Application"),
    ],
)
def test_a_reference_for_which_the_list_has_no_value_is_an_error_that_names_it(reference, what):
    given = template(App={"Type": "AWS::EMRServerless::Application"}, Job=function(ID=reference))
    with pytest.raises(ReplacementIncomplete, match=f"Job {what}"):
        taken_out(given, [SPARK])


def test_an_output_of_a_resource_that_is_gone_has_the_value_of_the_list():
    given = template(App={"Type": "AWS::EMRServerless::Application"})
    given["Outputs"] = {"Id": {"Value": {"Fn::GetAtt": ["App", "ApplicationId"]}}}
    assert taken_out(given, [SPARK])["Outputs"] == {"Id": {"Value": "00ours"}}


def test_the_check_of_the_cdks_bootstrap_is_gone_and_other_parameters_stay():
    given = template(Role={"Type": "AWS::IAM::Role"})
    given |= {"Rules": {"CheckBootstrapVersion": {}}, "Parameters": {"BootstrapVersion": {}, "Mine": {}}}
    made = taken_out(given, [])
    assert "Rules" not in made
    assert made["Parameters"] == {"Mine": {}}


def test_the_given_template_is_not_changed():
    given = template(Role={"Type": "AWS::IAM::Role", "DependsOn": ["App"]}, App={"Type": SPARK.type})
    taken_out(given, [SPARK])
    assert given == template(Role={"Type": "AWS::IAM::Role", "DependsOn": ["App"]}, App={"Type": SPARK.type})


def test_an_entry_of_the_list_that_no_stack_has_is_an_error():
    require_used([SPARK], [template(), template(App={"Type": SPARK.type})])
    with pytest.raises(ReplacementUnused, match="no stack has AWS::EMRServerless::Application"):
        require_used([SPARK], [template(Role={"Type": "AWS::IAM::Role"})])


def created(name, physical, status="CREATE_COMPLETE"):
    return {"LogicalResourceId": name, "PhysicalResourceId": physical, "ResourceStatus": status}


def test_resources_with_an_id_are_created():
    require_created(template(Role={"Type": "AWS::IAM::Role"}), [created("Role", "role-1")])


@pytest.mark.parametrize(
    "found",
    [
        # What LocalStack 4.14 answers for a type that it does not know.
        [created("Board", "unknown")],
        [created("Board", "")],
        [created("Board", "board-1", "CREATE_FAILED")],
        [],
    ],
)
def test_a_resource_that_localstack_did_not_create_is_an_error_that_names_its_type(found):
    with pytest.raises(NotCreated, match=r"no Board \(AWS::CloudWatch::Dashboard\).*replaced\.py"):
        require_created(template(Board={"Type": "AWS::CloudWatch::Dashboard"}), found)


def test_each_type_is_in_the_list_once_and_says_what_replaces_it():
    types = [each.type for each in REPLACED]
    assert sorted(set(types)) == sorted(types)
    assert all(each.by for each in REPLACED)


def test_the_edits_open_methods_point_functions_to_our_emr_and_put_the_stand_ins_addresses():
    method = {"AuthorizationType": "CUSTOM", "AuthorizerId": "a", "HttpMethod": "ANY"}
    made = edited(
        template(
            Any={"Type": "AWS::ApiGateway::Method", "Properties": method},
            Job=function(DELEGATION_EMR_APPLICATION_ID="00ours"),
            Api=function(URL="https://polaris.internal/x"),
        ),
        {"https://polaris.internal": "http://127.0.0.1:1"},
        "http://127.0.0.1:2",
    )
    assert made["Resources"] == {
        "Any": {"Type": "AWS::ApiGateway::Method", "Properties": {"AuthorizationType": "NONE", "HttpMethod": "ANY"}},
        "Job": function(DELEGATION_EMR_APPLICATION_ID="00ours", AWS_ENDPOINT_URL_EMR_SERVERLESS="http://127.0.0.1:2"),
        "Api": function(URL="http://127.0.0.1:1/x"),
    }
